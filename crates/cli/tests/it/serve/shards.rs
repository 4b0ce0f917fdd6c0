//! Several shards.

use http::StatusCode;

use crate::serve::client::{client, get};
use crate::web::{Site, TempDir};

#[tokio::test]
async fn two_shards_serve_many_requests() {
    let dir = TempDir::new();
    for n in 0..100 {
        dir.old_file(&n.to_string(), format!("file {n}").as_bytes());
    }
    let site = Site::start(dir.path(), &["--shards", "2"]);
    let clients = [(); 4].map(|()| client());
    let tasks: Vec<_> = (0..100)
        .map(|n| {
            let (client, url) = (clients[n % 4].clone(), format!("{}/{n}", site.url));
            tokio::spawn(async move { (n, get(&client, &url, &[]).await) })
        })
        .collect();
    for task in tasks {
        let (n, (status, _, body)) = task.await.unwrap();
        assert_eq!(StatusCode::OK, status);
        assert_eq!(body, format!("file {n}"));
    }
}
