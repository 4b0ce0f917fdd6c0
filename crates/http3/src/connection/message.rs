//! Decoded header sections: requests and responses.

use clearway_quic::Role;
use clearway_quic::stream::StreamId;

use super::Connection;
use crate::count::Count;
use crate::defects::{Quirk, harmless_request};
use crate::error::{Code, ReceiveError, StreamError};
use crate::event::Event;
use crate::exchange::{RequestKind, has_body};
use crate::head::{Request, Response, find_field};
use crate::message_state::MessageEvent;
use crate::priority::Priority;
use crate::progress::Progress;
use crate::qpack::Field;
use crate::receive_half::Ending;
use crate::transport::Transport;
use crate::validate;

impl Connection {
    /// Handles a decoded header section.
    pub(super) fn on_header<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
        fields: Vec<Field>,
    ) -> Result<(), ReceiveError> {
        match self.role {
            Role::Server => {
                let request = validate::request(fields).or_else(|error| {
                    self.config.forgive(error)?;
                    Ok::<_, StreamError>(harmless_request())
                })?;
                let te = || find_field(&request.fields, b"te").is_some();
                self.config.refuse_when(Quirk::RefusesTe, te)?;
                self.on_request(quic, id, request)
            }
            Role::Client => self.on_response(quic, id, validate::response(fields)?),
        }
    }

    fn on_request<T: Transport>(
        &mut self,
        quic: &mut T,
        stream: StreamId,
        request: Request,
    ) -> Result<(), ReceiveError> {
        if !request.protocol.is_empty() && !self.config.extended_connect {
            let reason = ":protocol without SETTINGS_ENABLE_CONNECT_PROTOCOL";
            return Err(StreamError::malformed(reason).into());
        }
        let unknown = |error| self.config.forgive(error).map(|()| None);
        let length = validate::content_length(&request.fields).or_else(unknown)?;
        // Checked when the stream began, unless it might have been a session's.
        if self.goaway.rejects(self.role, stream) {
            self.reject(quic, stream);
            return Ok(());
        }
        if !self.admit_session(quic, stream, &request) {
            return Ok(());
        }
        let Some(exchange) = self.requests.get_mut(&stream) else {
            return Ok(());
        };
        exchange.request_kind = RequestKind::of(&request);
        // RFC 9218 §7: PRIORITY_UPDATE overrides the Priority field.
        if !exchange.reprioritized
            && let Some(value) = find_field(&request.fields, b"priority")
        {
            exchange.priority = Priority::parse(value);
        }
        quic.set_priority(stream, exchange.priority.into());
        let receiving = &mut exchange.receiving;
        receiving.progress = Progress::default();
        if exchange.request_kind.is_connect() {
            receiving.step(MessageEvent::Connect);
        } else {
            receiving.step(MessageEvent::Header);
            receiving.expect(length);
            receiving.has_body = has_body(&request, length);
        }
        self.look_ahead(quic, stream)?;
        let ending = self.take_ending(stream)?;
        if let Some(Ending::Reset(_)) = ending {
            // The application has not seen the request; there is nothing to respond to.
            self.abandon(quic, stream, Code::REQUEST_REJECTED);
            return Ok(());
        }
        self.counters.requests.count_one();
        let burst = self.config.limits.useless_frames_burst;
        self.rate_limits
            .useless_frames
            .refund(UPDATES_PER_REQUEST, burst);
        self.timers.on_activity();
        let arrived = Event::Request {
            stream,
            request,
            end: ending == Some(Ending::End),
        };
        self.announce(stream, arrived);
        self.retire(stream);
        Ok(())
    }

    fn on_response<T: Transport>(
        &mut self,
        quic: &mut T,
        stream: StreamId,
        response: Response,
    ) -> Result<(), ReceiveError> {
        let Some(exchange) = self.requests.get_mut(&stream) else {
            return Ok(());
        };
        if response.is_informational() {
            exchange.receiving.step(MessageEvent::Interim);
            exchange.informational = exchange.informational.saturating_add(1);
            self.counters.informational.count_one();
            if exchange.informational > self.config.limits.max_informational {
                let reason = "too many interim responses";
                return Err(StreamError::new(Code::EXCESSIVE_LOAD, reason).into());
            }
            let event = Event::Informational { stream, response };
            self.events.push_back(event);
            return Ok(());
        }
        let kind = exchange.request_kind;
        let step = kind.response_event(&response);
        let receiving = &mut exchange.receiving;
        if step != MessageEvent::Connect {
            let length = validate::content_length(&response.fields)?;
            receiving.expect(kind.content_len(&response, length));
        }
        receiving.step(step);
        self.on_session_answer(quic, stream, response.status);
        self.look_ahead(quic, stream)?;
        let ending = self.take_ending(stream)?;
        self.events.push_back(Event::Response {
            stream,
            response,
            end: ending == Some(Ending::End),
        });
        if let Some(Ending::Reset(code)) = ending {
            self.events.push_back(Event::Reset { stream, code });
        }
        self.retire(stream);
        Ok(())
    }
}

/// How many frames without effect a request makes up for: browsers change the priority of a request
/// a few times, and a proxy forwards what several browsers do.
const UPDATES_PER_REQUEST: u32 = 8;
