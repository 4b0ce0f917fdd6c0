//! The sender's report in the trailers.

use bytes::Bytes;
use clearway::http::Incoming;
use http::{Method, Response};
use http_body_util::Full;

use crate::serve::client::{LIMIT, client, request};
use crate::web::{Site, TempDir, pattern};

#[tokio::test]
async fn client_accepting_trailers_receives_the_breakdown() {
    let dir = TempDir::new();
    dir.old_file("small", b"x");
    dir.old_file("large", &pattern(2_000_000));
    let site = Site::start(dir.path(), &[]);
    let client = client();
    for name in ["small", "large"] {
        let url = format!("{}/{name}", site.url);
        let asked =
            request(Method::GET, &url, &[("te", "trailers")]).body(Full::<Bytes>::default());
        let mut response: Response<Incoming> = client.request(asked.unwrap()).await.unwrap();
        assert_eq!(response.headers()["trailer"], "clearway-breakdown");
        assert!(response.headers().contains_key("content-length"));
        response.body_mut().bytes(LIMIT).await.unwrap();
        let trailers = response.body().trailers().unwrap();
        let text = trailers["clearway-breakdown"].to_str().unwrap();
        assert!(
            text.contains("application=") && text.contains("packets-lost="),
            "{text}"
        );
        let mut plain = client.get(&url).await.unwrap();
        assert!(!plain.headers().contains_key("trailer"));
        plain.body_mut().bytes(LIMIT).await.unwrap();
        assert!(plain.body().trailers().is_none());
    }
}
