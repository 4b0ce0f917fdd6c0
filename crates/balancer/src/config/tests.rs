use super::*;

const VALID: &str = r#"
listen = "127.0.0.1:4433"
shards = 3
sources = ["127.0.1.0/30", "10.0.0.7"]
upstream_sockets = 9

[limits]
table_entries = 100
idle_seconds = 30
new_connections = 0

[health]
interval_ms = 200

[[backend]]
name = "a"
address = "127.0.0.1:5001"
server_ids = ["01", "aa01"]

[[backend]]
address = "127.0.0.1:5002"
weight = 3
state = "draining"
server_ids = ["02"]

[quic_lb]
active = 1
lifetime_seconds = 600

[[quic_lb.config]]
id = 0
server_id_len = 1
nonce_len = 7

[[quic_lb.config]]
id = 1
server_id_len = 2
nonce_len = 8
key = "8f95f09245765f80256934e50c66207f"
"#;

fn error(text: &str) -> String {
    let file = match File::parse(text) {
        Ok(file) => file,
        Err(error) => return error.to_string(),
    };
    match file
        .settings(None)
        .map(drop)
        .and_then(|()| file.server().map(drop))
    {
        Ok(()) => String::new(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn valid_file_is_read() {
    let file = File::parse(VALID).unwrap();
    let settings = file.settings(None).unwrap();
    assert_eq!(settings.listen, "127.0.0.1:4433".parse().unwrap());
    assert_eq!((settings.shards, settings.upstream_sockets), (3, 9));
    let sources: Vec<_> = settings.sources.iter().map(ToString::to_string).collect();
    assert_eq!(sources, ["127.0.1.1", "127.0.1.2", "10.0.0.7"]);
    assert_eq!(settings.limits.entries, 100);
    assert_eq!(settings.limits.new_connections, 0);
    let by_source = RouterLimits::default().new_connections_by_source;
    assert_eq!(settings.limits.new_connections_by_source, by_source);
    assert_eq!(
        settings.health.unwrap().interval,
        Duration::from_millis(200)
    );
    let [a, b] = settings.backends.as_slice() else {
        panic!("two backends");
    };
    assert_eq!(a.server_ids.len(), 2);
    assert_eq!((b.name.as_str(), b.weight), ("127.0.0.1:5002", 3));
    assert_eq!(b.state, BackendState::Draining);
    let server = file.server().unwrap();
    assert_eq!((server.active.id(), server.others.len()), (1, 1));
    assert!(server.active.is_encrypted());
    assert_eq!(server.lifetime, Some(Duration::from_secs(600)));
    let other = "[::]:1".parse().unwrap();
    assert_eq!(file.settings(Some(other)).unwrap().listen, other);
}

#[test]
fn unknown_key_is_an_error_with_its_line_and_the_known_ones() {
    for (from, to, word) in [
        ("shards = 3", "shrads = 3", "shrads"),
        ("weight = 3", "wieght = 3", "wieght"),
        ("interval_ms", "interval", "interval"),
        ("nonce_len = 7", "nonce_len = 7\nnounce = 1", "nounce"),
        ("active = 1", "active = 1\nkeys = 1", "keys"),
    ] {
        let text = VALID.replacen(from, to, 1);
        let message = error(&text);
        let line = text.lines().position(|line| line.contains(word)).unwrap() + 1;
        let named = message.contains(&format!("line {line}"));
        assert!(named && message.contains("expected one of"), "{message}");
    }
}

#[test]
fn invalid_value_is_an_error_that_names_its_place() {
    for (from, to, expected) in [
        ("shards = 3", "shards = 0", "shards: must be from 1 to 1024"),
        ("listen = ", "#", "listen: missing"),
        ("\"01\"", "\"0\"", "backend \"a\": invalid server ID \"0\""),
        ("\"01\"", "\"010203\"", "server IDs of 3 byte(s)"),
        ("\"01\"", "\"zz\"", "invalid server ID \"zz\""),
        ("weight = 3", "weight = 0", "invalid weight 0"),
        ("weight = 3", "name = \"a\"", "two backends have this name"),
        (
            "66207f",
            "66207",
            "quic_lb.config 1: invalid key: expected 32",
        ),
        ("nonce_len = 7", "nonce_len = 3", "invalid nonce length 3"),
        ("id = 0\n", "id = 7\n", "invalid config ID 7"),
        (
            "active = 1",
            "active = 2",
            "no [[quic_lb.config]] has the ID 2",
        ),
        (
            "interval_ms = 200",
            "interval_ms = 0",
            "must be at least 10",
        ),
        ("/30", "/3", "more than 65536 addresses"),
        ("\"10.0.0.7\"", "\"x\"", "invalid source \"x\""),
        (
            "sockets = 9",
            "sockets = 0",
            "upstream_sockets: must be at least 1",
        ),
        (
            "idle_seconds = 30",
            "idle_seconds = 0",
            "limits.idle_seconds: must be",
        ),
    ] {
        let message = error(&VALID.replacen(from, to, 1));
        assert!(message.contains(expected), "{from} -> {to}: {message}");
    }
    assert_eq!(error(VALID), "");
    let without = VALID.split("[quic_lb]").next().unwrap();
    let without = without.replace("server_ids", "#");
    assert!(error(&without).contains("clearway balance keygen"));
}

#[test]
fn key_is_not_printed() {
    let file = File::parse(VALID).unwrap();
    assert!(!format!("{file:?}").contains("8f95"));
}
