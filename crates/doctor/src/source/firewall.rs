//! Rules of the firewall that drop, with their packet counters, from netlink (nftables).
//!
//! `iptables` of today (its nft variant) writes such rules too. A rule is read expression by
//! expression: it counts as one that drops if what follows its counter is nothing but the verdict, so
//! that the counter counts what was dropped.

use super::netlink::{attribute, attributes, be32, be64, dump_request, messages, text};
use crate::counters::Counters;
use crate::error::ParseError;

/// `NFNL_SUBSYS_NFTABLES << 8`
const NFTABLES: u16 = 10 << 8;
const NEWCHAIN: u16 = NFTABLES | 3;
const GETCHAIN: u16 = NFTABLES | 4;
const NEWRULE: u16 = NFTABLES | 6;
const GETRULE: u16 = NFTABLES | 7;
/// Length of `struct nfgenmsg`.
const GENMSG: usize = 4;

/// `NFT_META_L4PROTO`
const META_L4PROTO: u32 = 16;
/// `IPPROTO_UDP`
const UDP: u8 = 17;

/// A base chain: where in the kernel its rules are applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    family: u8,
    table: String,
    name: String,
    hook: Option<u32>,
}

/// Writes a request for all chains.
#[must_use]
pub fn chains_request() -> Vec<u8> {
    dump_request(GETCHAIN, &[0; GENMSG])
}

/// Writes a request for all rules.
#[must_use]
pub fn rules_request() -> Vec<u8> {
    dump_request(GETRULE, &[0; GENMSG])
}

/// Reads the chains.
///
/// # Errors
/// If a message is too short.
pub fn parse_chains(bytes: &[u8]) -> Result<Vec<Chain>, ParseError> {
    let (messages, _) = messages(bytes)?;
    let chains = messages.iter().filter(|message| message.kind == NEWCHAIN);
    chains
        .map(|message| {
            let (family, rest) = split(message.body)?;
            let field = |kind| attribute(rest, kind).map(text).unwrap_or_default();
            let hook = attribute(rest, 4).and_then(|hook| attribute(hook, 1));
            Ok(Chain {
                family,
                table: field(1),
                name: field(3),
                hook: hook.and_then(be32),
            })
        })
        .collect()
}

/// Reads the rules that drop, into counters such as `nft inet filter input handle 7`; those that
/// packets meet on their way out begin with `nft-out`. Rules of other protocols than UDP are left out.
///
/// # Errors
/// If a message is too short.
pub fn parse_rules(bytes: &[u8], chains: &[Chain]) -> Result<Counters, ParseError> {
    let (messages, _) = messages(bytes)?;
    let mut counters = Counters::default();
    for message in messages.iter().filter(|message| message.kind == NEWRULE) {
        let (family, rest) = split(message.body)?;
        let Some(packets) = attribute(rest, 4).and_then(dropped_packets) else {
            continue;
        };
        let field = |kind| attribute(rest, kind).map(text).unwrap_or_default();
        let (table, chain) = (field(1), field(2));
        let handle = attribute(rest, 3).and_then(be64).unwrap_or_default();
        let hook = chains
            .iter()
            .find(|c| c.family == family && c.table == table && c.name == chain)
            .and_then(|chain| chain.hook);
        let prefix = if is_output(family, hook) {
            "nft-out"
        } else {
            "nft"
        };
        let family = family_name(family);
        counters.add(
            format!("{prefix} {family} {table} {chain} handle {handle}"),
            packets,
        );
    }
    Ok(counters)
}

fn split(body: &[u8]) -> Result<(u8, &[u8]), ParseError> {
    let wrong = || ParseError::new("an nftables message", &format!("{} bytes", body.len()));
    let family = *body.first().ok_or_else(wrong)?;
    Ok((family, body.get(GENMSG..).ok_or_else(wrong)?))
}

const fn family_name(family: u8) -> &'static str {
    match family {
        1 => "inet",
        2 => "ip",
        3 => "arp",
        5 => "netdev",
        7 => "bridge",
        10 => "ip6",
        _ => "unknown",
    }
}

/// `NF_INET_LOCAL_OUT` and `NF_INET_POST_ROUTING`, for `netdev` the hook `egress`.
const fn is_output(family: u8, hook: Option<u32>) -> bool {
    match hook {
        Some(hook) if family == 5 => hook == 1,
        Some(hook) => hook == 3 || hook == 4,
        None => false,
    }
}

/// Returns what a rule's counter says, if it counts what the rule drops and that may be UDP.
fn dropped_packets(expressions: &[u8]) -> Option<u64> {
    let mut packets = None;
    let mut drops = false;
    let mut loads_protocol = false;
    for (_, expression) in attributes(expressions) {
        let name = text(attribute(expression, 1)?);
        let data = attribute(expression, 2).unwrap_or_default();
        match name.as_str() {
            "counter" => packets = attribute(data, 2).and_then(be64),
            "immediate" => drops = verdict(data) == Some(0),
            "reject" => drops = true,
            "log" | "notrack" => {}
            "meta" => {
                loads_protocol = attribute(data, 2).and_then(be32) == Some(META_L4PROTO);
                packets = None;
            }
            "cmp" => {
                if loads_protocol && compared(data).is_some_and(|protocol| protocol != UDP) {
                    return None;
                }
                packets = None;
            }
            // A condition after the counter: the counter says more than what is dropped.
            _ => packets = None,
        }
    }
    packets.filter(|_| drops)
}

/// The code of a verdict: 0 drops, 1 accepts.
fn verdict(immediate: &[u8]) -> Option<u32> {
    attribute(attribute(attribute(immediate, 2)?, 2)?, 1).and_then(be32)
}

/// The byte that a comparison for equality compares with.
fn compared(cmp: &[u8]) -> Option<u8> {
    let equal = attribute(cmp, 2).and_then(be32)? == 0;
    let value = attribute(attribute(cmp, 3)?, 1)?;
    value.first().copied().filter(|_| equal && value.len() == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tlv(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = u16::try_from(value.len() + 4)
            .unwrap()
            .to_ne_bytes()
            .to_vec();
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn expression(name: &str, data: &[u8]) -> Vec<u8> {
        tlv(1, &[tlv(1, name.as_bytes()), tlv(2, data)].concat())
    }

    fn counter(packets: u64) -> Vec<u8> {
        expression("counter", &tlv(2, &packets.to_be_bytes()))
    }

    fn verdict_bytes(code: u32) -> Vec<u8> {
        expression("immediate", &tlv(2, &tlv(2, &tlv(1, &code.to_be_bytes()))))
    }

    fn protocol(number: u8) -> Vec<u8> {
        let meta = expression("meta", &tlv(2, &META_L4PROTO.to_be_bytes()));
        let data = [tlv(2, &0_u32.to_be_bytes()), tlv(3, &tlv(1, &[number]))].concat();
        [meta, expression("cmp", &data)].concat()
    }

    fn rules(expressions: &[u8]) -> Counters {
        let mut body = vec![1, 0, 0, 0];
        body.extend(tlv(1, b"filter\0"));
        body.extend(tlv(2, b"input\0"));
        body.extend(tlv(3, &7_u64.to_be_bytes()));
        body.extend(tlv(4, expressions));
        parse_rules(&dump_request(NEWRULE, &body), &[]).unwrap()
    }

    #[test]
    fn only_counters_of_what_is_dropped_and_may_be_udp_are_read() {
        let name = "nft inet filter input handle 7";
        let dropped = |parts: &[Vec<u8>]| rules(&parts.concat()).find(name);
        assert_eq!(dropped(&[counter(5), verdict_bytes(0)]), Some(5));
        assert_eq!(
            dropped(&[protocol(17), counter(5), verdict_bytes(0)]),
            Some(5)
        );
        assert_eq!(dropped(&[counter(5), expression("reject", &[])]), Some(5));
        assert_eq!(dropped(&[protocol(6), counter(5), verdict_bytes(0)]), None);
        assert_eq!(dropped(&[counter(5), verdict_bytes(1)]), None);
        assert_eq!(dropped(&[counter(5), protocol(17), verdict_bytes(0)]), None);
        assert_eq!(dropped(&[verdict_bytes(0)]), None);
    }

    #[test]
    fn rules_of_the_output_hook_are_told_apart() {
        let mut chain = vec![1, 0, 0, 0];
        chain.extend(tlv(1, b"filter\0"));
        chain.extend(tlv(3, b"output\0"));
        chain.extend(tlv(4, &tlv(1, &3_u32.to_be_bytes())));
        let chains = parse_chains(&dump_request(NEWCHAIN, &chain)).unwrap();
        let mut body = vec![1, 0, 0, 0];
        body.extend(tlv(1, b"filter\0"));
        body.extend(tlv(2, b"output\0"));
        body.extend(tlv(3, &1_u64.to_be_bytes()));
        body.extend(tlv(4, &[counter(9), verdict_bytes(0)].concat()));
        let counters = parse_rules(&dump_request(NEWRULE, &body), &chains).unwrap();
        assert_eq!(counters.get("nft-out inet filter output handle 1"), 9);
    }
}
