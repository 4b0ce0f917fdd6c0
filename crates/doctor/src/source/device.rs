//! Network devices and their counters, from netlink (`RTM_GETLINK`).

use serde::{Deserialize, Serialize};

use super::netlink::{attribute, attributes, dump_request, messages, text, u32_at, u64_at};
use crate::counters::Counters;
use crate::error::ParseError;

/// `RTM_NEWLINK`
const NEWLINK: u16 = 16;
/// `RTM_GETLINK`
const GETLINK: u16 = 18;
/// Length of `struct ifinfomsg`.
const INFO: usize = 16;
const IFLA_IFNAME: u16 = 3;
const IFLA_STATS64: u16 = 23;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_ATTACHED: u16 = 2;

/// The fields of `struct rtnl_link_stats64` (include/uapi/linux/if_link.h) in their order.
const STATS: [&str; 25] = [
    "rx_packets",
    "tx_packets",
    "rx_bytes",
    "tx_bytes",
    "rx_errors",
    "tx_errors",
    "rx_dropped",
    "tx_dropped",
    "multicast",
    "collisions",
    "rx_length_errors",
    "rx_over_errors",
    "rx_crc_errors",
    "rx_frame_errors",
    "rx_fifo_errors",
    "rx_missed_errors",
    "tx_aborted_errors",
    "tx_carrier_errors",
    "tx_fifo_errors",
    "tx_heartbeat_errors",
    "tx_window_errors",
    "rx_compressed",
    "tx_compressed",
    "rx_nohandler",
    "rx_otherhost_dropped",
];

/// A network device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Whether an XDP program is attached. The packets that one drops are in no counter of the kernel's,
    /// only in the driver's or the program's own.
    pub xdp: bool,
}

/// Writes a request for all devices.
#[must_use]
pub fn request() -> Vec<u8> {
    dump_request(GETLINK, &[0; INFO])
}

/// Reads the answer: the devices, and counters such as `dev eth0.rx_dropped`.
///
/// # Errors
/// If a message is too short.
pub fn parse(bytes: &[u8]) -> Result<(Vec<Device>, Counters), ParseError> {
    let (messages, _) = messages(bytes)?;
    let mut devices = Vec::new();
    let mut counters = Counters::default();
    for message in messages.iter().filter(|message| message.kind == NEWLINK) {
        let wrong =
            || ParseError::new("a network device", &format!("{} bytes", message.body.len()));
        let index = u32_at(message.body, 4).ok_or_else(wrong)?;
        let rest = message.body.get(INFO..).ok_or_else(wrong)?;
        let name = attribute(rest, IFLA_IFNAME).map(text).unwrap_or_default();
        for (kind, value) in attributes(rest) {
            if kind == IFLA_STATS64 {
                statistics(&name, value, &mut counters);
            }
        }
        let xdp = attribute(rest, IFLA_XDP)
            .and_then(|nested| attribute(nested, IFLA_XDP_ATTACHED))
            .is_some_and(|mode| mode.first().is_some_and(|&mode| mode != 0));
        devices.push(Device { index, name, xdp });
    }
    Ok((devices, counters))
}

fn statistics(device: &str, value: &[u8], counters: &mut Counters) {
    for index in 0..value.len() / 8 {
        let Some(number) = u64_at(value, index * 8) else {
            return;
        };
        match STATS.get(index) {
            Some(name) => counters.add(format!("dev {device}.{name}"), number),
            None => counters.add(format!("dev {device}.statistic_{index}"), number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute_bytes(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = u16::try_from(value.len() + 4)
            .unwrap()
            .to_ne_bytes()
            .to_vec();
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn statistics_are_named_and_unknown_ones_kept() {
        let mut body = vec![0; INFO];
        body[4] = 2;
        body.extend(attribute_bytes(IFLA_IFNAME, b"eth0\0"));
        let numbers: Vec<u8> = (0..26_u64).flat_map(u64::to_ne_bytes).collect();
        body.extend(attribute_bytes(IFLA_STATS64, &numbers));
        body.extend(attribute_bytes(
            IFLA_XDP,
            &attribute_bytes(IFLA_XDP_ATTACHED, &[1]),
        ));
        let message = dump_request(NEWLINK, &body);
        let (devices, counters) = parse(&message).unwrap();
        assert_eq!(
            devices,
            [Device {
                index: 2,
                name: "eth0".into(),
                xdp: true
            }]
        );
        assert_eq!(counters.get("dev eth0.rx_missed_errors"), 15);
        assert_eq!(counters.get("dev eth0.statistic_25"), 25);
    }
}
