//! What DNS over QUIC has to know of a DNS message (RFC 1035 §4): its ID and its OPT record
//! (RFC 6891), in which its padding is (RFC 7830).

/// The longest message, in bytes: its length has two bytes (RFC 9250 §4.2).
pub const MAX_MESSAGE: usize = u16::MAX as usize;

/// The length of the header, in bytes.
const HEADER: usize = 12;
/// The block to which queries are padded, in bytes (RFC 8467 §4.1).
pub(super) const QUERY_BLOCK: usize = 128;
/// The block to which responses are padded, in bytes.
pub(super) const RESPONSE_BLOCK: usize = 468;
/// The size of UDP messages without an OPT record, in bytes (RFC 1035 §4.2.1).
const PLAIN_UDP: usize = 512;
/// The largest UDP message that we accept, in bytes, for OPT records that we add.
const OUR_UDP: u16 = 1232;

/// QR, in the header's third byte: a response.
const RESPONSE: u8 = 0x80;

const TYPE_OPT: u16 = 41;
const TYPE_SIG: u16 = 24;
const TYPE_TSIG: u16 = 250;
const OPTION_TCP_KEEPALIVE: u16 = 11;
const OPTION_PADDING: u16 = 12;
/// The header of an option: its code and its length, in bytes.
const OPTION_HEADER: usize = 4;
/// An OPT record without options, in bytes: a name of one, type, class, TTL, length.
const OPT_HEADER: usize = 11;

/// Returns a message's ID.
#[must_use]
pub fn id(message: &[u8]) -> Option<u16> {
    number(message, 0)
}

/// Sets a message's ID.
pub fn set_id(message: &mut [u8], id: u16) {
    put(message, 0, id);
}

/// Whether the message has a header that says query, not response. Nothing else should be
/// answered: two forwarders that answer responses could send to each other for ever.
#[must_use]
pub fn is_query(message: &[u8]) -> bool {
    message.len() >= HEADER && message.get(2).is_some_and(|byte| byte & RESPONSE == 0)
}

/// Whether a response is one to this query: it has its ID and its question (RFC 5452 §9.1), or no
/// question, as some error responses.
#[must_use]
pub fn is_response_to(response: &[u8], query: &[u8]) -> bool {
    let is_response = response.get(2).is_some_and(|byte| byte & RESPONSE != 0);
    if response.len() < HEADER || !is_response || id(response) != id(query) {
        return false;
    }
    match (question(response), question(query)) {
        (Some(answered), Some(asked)) => answered.eq_ignore_ascii_case(asked),
        (None, _) => number(response, 4) == Some(0),
        (Some(_), None) => false,
    }
}

/// The question of a message that has one: name, type and class.
fn question(message: &[u8]) -> Option<&[u8]> {
    if number(message, 4) != Some(1) {
        return None;
    }
    let end = skip_name(message, HEADER)?.checked_add(4)?;
    message.get(HEADER..end)
}

/// The opcode (RFC 1035 §4.1.1).
pub(super) fn opcode(message: &[u8]) -> Option<u8> {
    Some(message.get(2)? >> 3 & 0xf)
}

/// Whether the message may be sent in 0-RTT: it changes nothing, or it does not matter if it is
/// replayed (RFC 9250 §4.5): QUERY and NOTIFY.
pub(super) fn is_replayable(message: &[u8]) -> bool {
    matches!(opcode(message), Some(0 | 4))
}

/// Whether a zone is transferred, by several responses (RFC 9250 §5.7): AXFR or IXFR.
pub(super) fn is_transfer(message: &[u8]) -> bool {
    let question = skip_name(message, HEADER).and_then(|end| number(message, end));
    matches!(question, Some(251 | 252))
}

/// Returns an error response to a query: its header and question, with this RCODE (RFC 1035 §4.1.1).
#[must_use]
pub fn error_response(query: &[u8], rcode: u8) -> Vec<u8> {
    let mut response = question_only(query);
    if let Some(byte) = response.get_mut(3) {
        *byte = *byte & 0xf0 | rcode & 0xf;
    }
    response
}

/// Returns a response without its records and with the TC bit, for a client on UDP whom it does not
/// fit: it asks again over TCP.
#[must_use]
pub fn truncated(response: &[u8]) -> Vec<u8> {
    let mut short = question_only(response);
    if let Some(byte) = short.get_mut(2) {
        *byte |= 2;
    }
    short
}

/// Returns the header and the question of a message, as a response without records.
fn question_only(message: &[u8]) -> Vec<u8> {
    let mut short = message
        .get(..HEADER.min(message.len()))
        .unwrap_or_default()
        .to_vec();
    short.resize(HEADER, 0);
    let question = question(message);
    if let Some(byte) = short.get_mut(2) {
        *byte |= RESPONSE;
    }
    put(&mut short, 4, u16::from(question.is_some()));
    for count in [6, 8, 10] {
        put(&mut short, count, 0);
    }
    short.extend_from_slice(question.unwrap_or_default());
    short
}

/// Returns how large a response over UDP the sender of this query accepts, in bytes.
#[must_use]
pub fn max_udp_size(query: &[u8]) -> usize {
    let opt = find_opt(query).ok().and_then(|records| records.opt);
    let announced = opt.and_then(|opt| number(query, opt.start.saturating_add(3)));
    announced.map_or(PLAIN_UDP, |size| usize::from(size).max(PLAIN_UDP))
}

/// Whether the message has the option edns-tcp-keepalive, which is an error on QUIC (RFC 9250
/// §5.5.2).
pub(super) fn has_tcp_keepalive(message: &[u8]) -> bool {
    let Ok(Records { opt: Some(opt), .. }) = find_opt(message) else {
        return false;
    };
    options(message, &opt).any(|option| option.code == OPTION_TCP_KEEPALIVE)
}

/// The OPT record of a message that was sent in another form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Changed {
    /// Nothing that the sender would notice.
    No,
    /// It had no OPT record.
    OptAdded,
    /// It had no padding.
    Padded,
}

/// Pads a message to a multiple of `block` bytes, and adds an OPT record if it has none and `adds`
/// (RFC 9250 §5.4). A message that is signed, malformed or too long stays as it is.
pub(super) fn pad(message: &mut Vec<u8>, block: usize, adds: bool) -> Changed {
    let Ok(Records { opt, signed: false }) = find_opt(message) else {
        return Changed::No;
    };
    let mut changed = Changed::No;
    let opt = match opt {
        Some(opt) => opt,
        None if adds => {
            changed = Changed::OptAdded;
            add_opt(message)
        }
        None => return Changed::No,
    };
    let had = remove_option(message, &opt, OPTION_PADDING);
    if changed == Changed::No && !had {
        changed = Changed::Padded;
    }
    let unpadded = message.len().saturating_add(OPTION_HEADER);
    let padding = unpadded.next_multiple_of(block).saturating_sub(unpadded);
    if unpadded.saturating_add(padding) <= MAX_MESSAGE {
        insert_padding(message, opt.start, padding);
    }
    changed
}

/// Undoes in a response what [`pad`] has changed in its query.
pub(super) fn unpad(message: &mut Vec<u8>, changed: Changed) {
    let Ok(Records {
        opt: Some(opt),
        signed: false,
    }) = find_opt(message)
    else {
        return;
    };
    match changed {
        Changed::No => {}
        Changed::Padded => {
            remove_option(message, &opt, OPTION_PADDING);
        }
        Changed::OptAdded => {
            message.drain(opt.start..opt.end);
            let records = number(message, 10).unwrap_or(0);
            put(message, 10, records.saturating_sub(1));
        }
    }
}

/// Whether a response may be padded: its query had an OPT record (RFC 6891 §6.1.1) with padding
/// (RFC 7830 §4).
pub(super) fn asks_for_padding(query: &[u8]) -> bool {
    let Ok(Records { opt: Some(opt), .. }) = find_opt(query) else {
        return false;
    };
    options(query, &opt).any(|option| option.code == OPTION_PADDING)
}

/// Where the OPT record is.
#[derive(Clone, Copy, Debug)]
struct Opt {
    /// Its name, which is the root: one byte.
    start: usize,
    end: usize,
}

struct Records {
    opt: Option<Opt>,
    /// The message has a signature (TSIG, SIG(0)), so that nothing in it may change.
    signed: bool,
}

/// The message is malformed.
struct Malformed;

/// Finds the OPT record.
fn find_opt(message: &[u8]) -> Result<Records, Malformed> {
    let [questions, answers, authority, additional] =
        [4, 6, 8, 10].map(|at| number(message, at).unwrap_or(0));
    if message.len() < HEADER {
        return Err(Malformed);
    }
    let mut at = HEADER;
    for _ in 0..questions {
        at = skip_name(message, at).ok_or(Malformed)?.saturating_add(4);
    }
    let before = u32::from(answers).saturating_add(u32::from(authority));
    let mut records = Records {
        opt: None,
        signed: false,
    };
    for nth in 0..before.saturating_add(additional.into()) {
        let fixed = skip_name(message, at).ok_or(Malformed)?;
        let kind = number(message, fixed).ok_or(Malformed)?;
        let length = number(message, fixed.saturating_add(8)).ok_or(Malformed)?;
        let end = fixed.saturating_add(10).saturating_add(length.into());
        if nth >= before && kind == TYPE_OPT && fixed == at.saturating_add(1) {
            records.opt = Some(Opt { start: at, end });
        }
        records.signed |= nth >= before && (kind == TYPE_TSIG || kind == TYPE_SIG);
        at = end;
    }
    match at == message.len() {
        true => Ok(records),
        false => Err(Malformed),
    }
}

/// An option of an OPT record.
struct EdnsOption {
    code: u16,
    start: usize,
    end: usize,
}

/// The options of an OPT record. One that is longer than the record ends them.
fn options<'a>(message: &'a [u8], opt: &Opt) -> impl Iterator<Item = EdnsOption> + use<'a> {
    let (mut at, end) = (opt.start.saturating_add(OPT_HEADER), opt.end);
    core::iter::from_fn(move || {
        let start = at;
        let code = number(message, start)?;
        let length = number(message, start.saturating_add(2))?;
        at = start
            .saturating_add(OPTION_HEADER)
            .saturating_add(length.into());
        (at <= end).then_some(EdnsOption {
            code,
            start,
            end: at,
        })
    })
}

/// Removes the options with this code. Returns whether there was one.
fn remove_option(message: &mut Vec<u8>, opt: &Opt, code: u16) -> bool {
    let found: Vec<EdnsOption> = options(message, opt)
        .filter(|option| option.code == code)
        .collect();
    let mut removed = 0_usize;
    for option in found.iter().rev() {
        message.drain(option.start..option.end);
        removed = removed.saturating_add(option.end.saturating_sub(option.start));
    }
    change_length(message, opt.start, |length| length.saturating_sub(removed));
    removed > 0
}

/// Adds an OPT record without options. Returns where it is.
fn add_opt(message: &mut Vec<u8>) -> Opt {
    let start = message.len();
    message.push(0);
    for word in [TYPE_OPT, OUR_UDP, 0, 0, 0] {
        message.extend_from_slice(&word.to_be_bytes());
    }
    let records = number(message, 10).unwrap_or(0);
    put(message, 10, records.saturating_add(1));
    Opt {
        start,
        end: message.len(),
    }
}

/// Adds the padding option with `length` bytes of zeros, as the last one of the OPT record.
fn insert_padding(message: &mut Vec<u8>, opt: usize, length: usize) {
    let Some(options) = number(message, opt.saturating_add(9)) else {
        return;
    };
    let at = opt
        .saturating_add(OPT_HEADER)
        .saturating_add(options.into());
    let mut option = OPTION_PADDING.to_be_bytes().to_vec();
    option.extend_from_slice(&u16::try_from(length).unwrap_or(0).to_be_bytes());
    option.resize(OPTION_HEADER.saturating_add(length), 0);
    let added = option.len();
    if at <= message.len() {
        message.splice(at..at, option);
        change_length(message, opt, |length| length.saturating_add(added));
    }
}

/// Changes the length of an OPT record's options.
fn change_length(message: &mut [u8], opt: usize, change: impl FnOnce(usize) -> usize) {
    let at = opt.saturating_add(9);
    if let Some(length) = number(message, at) {
        let length = u16::try_from(change(length.into())).unwrap_or(u16::MAX);
        put(message, at, length);
    }
}

/// Returns where the name that begins at `at` ends. Pointers are not followed.
fn skip_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let length = *message.get(at)?;
        at = at.saturating_add(1);
        match length >> 6 {
            0 if length == 0 => return Some(at),
            0 => at = at.saturating_add(length.into()),
            3 => {
                message.get(at)?;
                return Some(at.saturating_add(1));
            }
            _ => return None,
        }
    }
}

fn number(message: &[u8], at: usize) -> Option<u16> {
    let bytes = message.get(at..at.saturating_add(2))?;
    Some(u16::from_be_bytes(bytes.try_into().ok()?))
}

fn put(message: &mut [u8], at: usize, value: u16) {
    if let Some(bytes) = message.get_mut(at..at.saturating_add(2)) {
        bytes.copy_from_slice(&value.to_be_bytes());
    }
}

#[cfg(test)]
mod tests;
