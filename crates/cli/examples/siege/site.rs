//! The served directory: files of known content, and a directory with 20,000 entries.

use std::fs;
use std::io;
use std::path::PathBuf;

use bytes::Bytes;
use clearway::DevelopmentIdentity;
use clearway_links::Dice;

/// Size of the small file, bytes.
const SMALL: usize = 4 << 10;

/// Entries of the directory `listing`.
const ENTRIES: usize = 20_000;

/// Names in the certificate. Clients use the first; those that need a new connection
/// for each request use names that the second covers.
const NAMES: [&str; 3] = ["localhost", "*.siege.test", "127.0.0.1"];

/// A file with known content.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) path: &'static str,
    pub(crate) content: Bytes,
}

/// The directory; removed when dropped.
#[derive(Debug)]
pub(crate) struct Site {
    root: PathBuf,
    pub(crate) small: Known,
    /// 1, 2, 4 and 8 MiB.
    pub(crate) large: Vec<Known>,
    pub(crate) certificate_pem: String,
}

impl Site {
    /// Creates it in the system's directory for temporary files.
    pub(crate) fn create() -> io::Result<Self> {
        let root = std::env::temp_dir().join(format!("clearway-siege-{}", std::process::id()));
        fs::create_dir(&root)?;
        // From here on it is removed on every way out.
        let mut site = Self {
            small: known("/small", SMALL),
            large: [("/1m", 1), ("/2m", 2), ("/4m", 4), ("/8m", 8)]
                .map(|(path, mebibytes)| known(path, mebibytes << 20))
                .into(),
            root,
            certificate_pem: String::new(),
        };
        site.fill()?;
        Ok(site)
    }

    fn fill(&mut self) -> io::Result<()> {
        let served = self.served();
        for folder in ["listing", "uploads", "hostile"] {
            fs::create_dir_all(served.join(folder))?;
        }
        for file in self.large.iter().chain([&self.small]) {
            fs::write(served.join(&file.path[1..]), &file.content)?;
        }
        for entry in 0..ENTRIES {
            let name = format!("listing/an-entry-with-a-name-of-some-length-{entry:05}");
            fs::File::create_new(served.join(name))?;
        }
        let identity = DevelopmentIdentity::generate(NAMES).map_err(io::Error::other)?;
        fs::write(self.certificate(), identity.certificate_pem())?;
        fs::write(self.key(), identity.key_pem())?;
        identity
            .certificate_pem()
            .clone_into(&mut self.certificate_pem);
        Ok(())
    }

    /// The directory to serve.
    pub(crate) fn served(&self) -> PathBuf {
        self.root.join("served")
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.root.join("certificate.pem")
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.root.join("key.pem")
    }

    /// The file that an upload to `/uploads/NAME` creates.
    pub(crate) fn uploaded(&self, name: &str) -> PathBuf {
        self.served().join("uploads").join(name)
    }

    /// Removes all uploads, also temporary files of a killed server.
    pub(crate) fn sweep(&self) -> io::Result<()> {
        for folder in ["hostile", "uploads"] {
            for entry in fs::read_dir(self.served().join(folder))? {
                fs::remove_file(entry?.path())?;
            }
        }
        Ok(())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // What cannot be removed stays with the other temporary files.
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn known(path: &'static str, length: usize) -> Known {
    let mut dice = Dice::new(length as u64, 0);
    let content = (0..length / 8)
        .flat_map(|_| dice.below(u64::MAX).to_be_bytes())
        .collect();
    Known { path, content }
}
