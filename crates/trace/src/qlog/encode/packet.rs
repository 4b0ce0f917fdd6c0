//! Encoding of a packet with its header and frames.

use super::frame::frame;
use crate::event::Packet;
use crate::qlog::Dialect;
use crate::qlog::json::Json;

pub(super) fn packet(json: &mut Json<'_>, it: &Packet, dialect: Dialect) {
    json.object("header", |json| {
        json.text("packet_type", it.kind.name());
        json.opt_u64("packet_number", it.number);
    });
    if let Some(size) = it.size {
        json.object("raw", |json| json.u64("length", size));
    }
    if it.mtu_probe {
        json.bool("is_mtu_probe_packet", true);
    }
    if let Some(ecn) = &it.ecn {
        json.text("ecn", ecn);
    }
    if let Some(frames) = &it.frames {
        json.array("frames", |json| {
            for each in frames {
                json.element(|json| frame(json, each, dialect));
            }
        });
    }
}
