//! The verification of a response while it arrives.

use std::sync::Arc;

use anyhow::{Result, bail, ensure};

use crate::{Ask, pattern, transfer::Progress};

/// A response that is arriving.
#[derive(Debug)]
pub struct Answer {
    progress: Arc<Progress>,
    ask: Ask,
    offset: u64,
}

impl Answer {
    pub(crate) fn new(progress: Arc<Progress>, ask: Ask) -> Self {
        Self {
            progress,
            ask,
            offset: 0,
        }
    }

    /// Verifies the next bytes.
    ///
    /// # Errors
    /// A byte is wrong, or there are too many bytes.
    pub fn take(&mut self, bytes: &[u8]) -> Result<()> {
        let length = bytes.len() as u64;
        let wanted = self.ask.wanted;
        ensure!(
            length <= wanted - self.offset,
            "received more than the expected {wanted} bytes"
        );
        if let Err(at) = pattern::verify(self.offset, bytes) {
            bail!("wrong byte at offset {at}");
        }
        self.offset += length;
        self.progress.credit(length);
        Ok(())
    }

    /// Compares the trailer `x-sum` with the sum of the bytes that were sent.
    ///
    /// # Errors
    /// It has another value.
    pub fn trailer(&mut self, sum: &[u8]) -> Result<()> {
        let expected = self.progress.sum.to_string();
        ensure!(
            sum == expected.as_bytes(),
            "x-sum is {}, expected {expected}",
            String::from_utf8_lossy(sum)
        );
        self.progress.credit_trailer();
        Ok(())
    }

    /// Checks the status of a response.
    ///
    /// # Errors
    /// It is not 200.
    pub fn status(&mut self, status: u16) -> Result<()> {
        ensure!(status == 200, "unexpected status {status}, expected 200");
        Ok(())
    }

    /// Checks that all bytes have arrived.
    ///
    /// # Errors
    /// Bytes are missing.
    pub fn whole(&self) -> Result<()> {
        let (offset, wanted) = (self.offset, self.ask.wanted);
        ensure!(
            offset == wanted,
            "received {offset} bytes, expected {wanted}"
        );
        Ok(())
    }
}
