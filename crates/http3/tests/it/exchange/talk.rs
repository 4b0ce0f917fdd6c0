//! A client and a server that talk, and what they say most.
#![allow(unreachable_pub, reason = "shared by the files of this binary")]

use std::time::Duration;

use bytes::Bytes;
use clearway_http3::{Request, Response};
use clearway_quic::stream::StreamId;

use crate::common::{Heard, Peer, Setup, World};

/// Two ends and what they hear.
pub struct Talk {
    pub world: World,
    pub client: Peer,
    pub server: Peer,
}

impl Talk {
    pub fn new(world: World) -> Self {
        Self {
            world,
            client: Peer::default(),
            server: Peer::default(),
        }
    }

    pub fn calm() -> Self {
        Self::new(World::calm(Setup::default()))
    }

    pub fn request(&mut self, request: &Request, end: bool) -> StreamId {
        let (http, quic) = self.world.client.split();
        http.request(quic, request, end).expect("a request")
    }

    /// Runs, serving requests with `serve`, until `done`.
    pub fn serve(
        &mut self,
        what: &str,
        mut serve: impl FnMut(&mut World, &mut Peer, StreamId, &Request),
        mut done: impl FnMut(&mut Peer, &mut Peer) -> bool,
    ) {
        let (client, server) = (&mut self.client, &mut self.server);
        self.world.must(what, |world| {
            client.turn(&mut world.client);
            for (id, request) in server.turn(&mut world.server) {
                serve(world, server, id, &request);
            }
            done(client, server)
        });
    }

    /// Runs until the client has the whole response.
    pub fn answer(
        &mut self,
        id: StreamId,
        mut serve: impl FnMut(&mut World, &mut Peer, StreamId, &Request),
    ) -> &Heard {
        self.serve(
            "a response",
            |world, server, id, request| serve(world, server, id, request),
            |client, _| client.heard(id).ended,
        );
        self.client.heard(id)
    }

    /// Both ends let go of everything.
    pub fn settle(&mut self) {
        self.serve(
            "idle",
            |_, _, _, _| {},
            |client, server| client.is_idle() && server.is_idle(),
        );
        self.world.run_for(Duration::from_millis(500));
        self.client.turn(&mut self.world.client);
        self.server.turn(&mut self.world.server);
        assert_eq!(self.world.client.http().open_requests(), 0);
        assert_eq!(self.world.server.http().open_requests(), 0);
        assert_eq!(
            (&self.world.client.closed, &self.world.server.closed),
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
