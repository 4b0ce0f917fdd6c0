//! A client and a server with applications, and the usual requests and responses.
#![allow(unreachable_pub, reason = "shared by the files of this binary")]

use std::time::Duration;

use bytes::Bytes;
use clearway_http3::{Request, Response};
use clearway_quic::stream::StreamId;

use crate::common::{Setup, StreamLog, TestApplication, World};

/// A client and a server, and their applications.
pub struct Pair {
    pub world: World,
    pub client: TestApplication,
    pub server: TestApplication,
}

impl Pair {
    pub fn new(world: World) -> Self {
        Self {
            world,
            client: TestApplication::default(),
            server: TestApplication::default(),
        }
    }

    pub fn connected() -> Self {
        Self::new(World::connected(Setup::default()))
    }

    pub fn request(&mut self, request: &Request, end: bool) -> StreamId {
        let (http, quic) = self.world.client.split();
        http.request(quic, request, end).expect("a request")
    }

    /// Runs until `done`, and handles requests with `serve`.
    pub fn serve(
        &mut self,
        what: &str,
        mut serve: impl FnMut(&mut World, &mut TestApplication, StreamId, &Request),
        mut done: impl FnMut(&mut TestApplication, &mut TestApplication) -> bool,
    ) {
        let (client, server) = (&mut self.client, &mut self.server);
        self.world.must(what, |world| {
            client.process(&mut world.client);
            for (id, request) in server.process(&mut world.server) {
                serve(world, server, id, &request);
            }
            done(client, server)
        });
    }

    /// Runs until the client has the complete response.
    pub fn run_until_response(
        &mut self,
        id: StreamId,
        mut serve: impl FnMut(&mut World, &mut TestApplication, StreamId, &Request),
    ) -> &StreamLog {
        self.serve(
            "a response",
            |world, server, id, request| serve(world, server, id, request),
            |client, _| client.log(id).ended,
        );
        self.client.log(id)
    }

    /// Runs until both endpoints are idle, and checks that no request is left open.
    pub fn assert_idle(&mut self) {
        self.serve(
            "idle",
            |_, _, _, _| {},
            |client, server| client.is_idle() && server.is_idle(),
        );
        self.world.run_for(Duration::from_millis(500));
        self.client.process(&mut self.world.client);
        self.server.process(&mut self.world.server);
        assert_eq!(self.world.client.app.open_requests(), 0);
        assert_eq!(self.world.server.app.open_requests(), 0);
        assert_eq!(
            (&self.world.client.app.closed, &self.world.server.app.closed),
            (&None, &None)
        );
    }
}

pub fn get() -> Request {
    Request::get("localhost", "/")
}

pub fn post() -> Request {
    Request::new("POST", "localhost", "/")
}

pub fn respond(world: &mut World, id: StreamId, response: &Response, body: impl Into<Bytes>) {
    let (http, quic) = world.server.split();
    http.respond_with_body(quic, id, response, body.into())
        .expect("responds");
}
