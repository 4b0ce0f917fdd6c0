//! Queueing disciplines and their counters, from netlink (`RTM_GETQDISC`).

use super::device::Device;
use super::netlink::{attribute, dump_request, messages, text, u32_at};
use crate::counters::Counters;
use crate::error::ParseError;

/// `RTM_NEWQDISC`
const NEWQDISC: u16 = 36;
/// `RTM_GETQDISC`
const GETQDISC: u16 = 38;
/// Length of `struct tcmsg`.
const TCMSG: usize = 20;
const TCA_KIND: u16 = 1;
const TCA_STATS2: u16 = 7;
const TCA_STATS_QUEUE: u16 = 3;

/// Writes a request for all queueing disciplines.
#[must_use]
pub fn request() -> Vec<u8> {
    dump_request(GETQDISC, &[0; TCMSG])
}

/// Reads the answer into counters such as `qdisc eth0 fq 1:.drops`. The lengths of queues
/// (`backlog`, `qlen`) are not counters and are left out.
///
/// # Errors
/// If a message is too short.
pub fn parse(bytes: &[u8], devices: &[Device]) -> Result<Counters, ParseError> {
    let (messages, _) = messages(bytes)?;
    let mut counters = Counters::default();
    for message in messages.iter().filter(|message| message.kind == NEWQDISC) {
        let wrong = || {
            ParseError::new(
                "a queueing discipline",
                &format!("{} bytes", message.body.len()),
            )
        };
        let index = u32_at(message.body, 4).ok_or_else(wrong)?;
        let handle = u32_at(message.body, 8).ok_or_else(wrong)?;
        let rest = message.body.get(TCMSG..).ok_or_else(wrong)?;
        let kind = attribute(rest, TCA_KIND).map(text).unwrap_or_default();
        let queue = attribute(rest, TCA_STATS2).and_then(|stats| attribute(stats, TCA_STATS_QUEUE));
        let Some(queue) = queue else { continue };
        let device = devices
            .iter()
            .find(|device| device.index == index)
            .map_or_else(|| format!("device {index}"), |device| device.name.clone());
        let name = format!("qdisc {device} {kind} {:x}:", handle >> 16);
        for (field, at) in [("drops", 8), ("requeues", 12), ("overlimits", 16)] {
            let value = u32_at(queue, at).map_or(0, u64::from);
            counters.add(format!("{name}.{field}"), value);
        }
    }
    Ok(counters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_named_by_device_kind_and_handle() {
        let mut body = vec![0; TCMSG];
        body[4] = 3;
        body[10] = 1;
        body.extend_from_slice(&[9, 0, 1, 0]);
        body.extend_from_slice(b"pfifo\0\0\0");
        body.extend_from_slice(&[28, 0, 7, 0, 24, 0, 3, 0]);
        for word in [1_u32, 2, 33, 4, 5] {
            body.extend_from_slice(&word.to_ne_bytes());
        }
        let device = Device {
            index: 3,
            name: "veth0".into(),
            xdp: false,
        };
        let counters = parse(&dump_request(NEWQDISC, &body), &[device]).unwrap();
        assert_eq!(counters.get("qdisc veth0 pfifo 1:.drops"), 33);
        assert_eq!(counters.get("qdisc veth0 pfifo 1:.overlimits"), 5);
    }
}
