//! Packet protection of every level, over key updates (RFC 9001 §5, §6).

use rustls::quic::{DirectionalKeys, Keys, PacketKey, PacketKeySet, Secrets};

use crate::wire::packet::{self, KEY_PHASE, Level, Plain};

/// Keys of 1-RTT packets of every generation so far.
struct OneRtt {
    first: Keys,
    /// Generation 1 and later.
    later: Vec<PacketKeySet>,
    secrets: Secrets,
    local: usize,
    remote: usize,
}

/// The keys of a connection.
pub(crate) struct Keyring {
    initial: Option<Keys>,
    zero_rtt: Option<DirectionalKeys>,
    handshake: Option<Keys>,
    one_rtt: Option<Box<OneRtt>>,
    /// Whether the peer's key updates are followed, as they have to be.
    pub(super) follows: bool,
}

impl Default for Keyring {
    fn default() -> Self {
        Self {
            initial: None,
            zero_rtt: None,
            handshake: None,
            one_rtt: None,
            follows: true,
        }
    }
}

/// A packet that was decrypted.
pub(crate) struct Opened {
    pub(crate) number: u64,
    pub(crate) payload: Vec<u8>,
    /// The first byte without protection.
    pub(crate) first: u8,
    /// Whether it began a generation of keys that we had not used.
    pub(crate) updated: bool,
}

impl OneRtt {
    /// Derives the generations up to this one.
    fn reach(&mut self, generation: usize) {
        while self.later.len() < generation {
            self.later.push(self.secrets.next_packet_keys());
        }
    }

    fn local_key(&self) -> &dyn PacketKey {
        match self.local.checked_sub(1).and_then(|at| self.later.get(at)) {
            Some(set) => &*set.local,
            None => &*self.first.local.packet,
        }
    }

    fn remote_key(&self, generation: usize) -> &dyn PacketKey {
        match generation.checked_sub(1).and_then(|at| self.later.get(at)) {
            Some(set) => &*set.remote,
            None => &*self.first.remote.packet,
        }
    }
}

impl Keyring {
    pub(crate) fn set_initial(&mut self, keys: Option<Keys>) {
        self.initial = keys;
    }

    pub(crate) fn set_zero_rtt(&mut self, keys: Option<DirectionalKeys>) {
        self.zero_rtt = keys;
    }

    pub(crate) fn set_handshake(&mut self, keys: Keys) {
        self.handshake = Some(keys);
    }

    pub(crate) fn set_one_rtt(&mut self, first: Keys, secrets: Secrets) {
        self.one_rtt = Some(Box::new(OneRtt {
            first,
            later: Vec::new(),
            secrets,
            local: 0,
            remote: 0,
        }));
    }

    /// Returns whether packets of this level can be sent.
    pub(crate) fn has(&self, level: Level) -> bool {
        match level {
            Level::Initial => self.initial.is_some(),
            Level::ZeroRtt => self.zero_rtt.is_some(),
            Level::Handshake => self.handshake.is_some(),
            Level::OneRtt => self.one_rtt.is_some(),
        }
    }

    /// Seals with the next generation from now on, whether that is permitted or not.
    pub(crate) fn update(&mut self) {
        if let Some(keys) = &mut self.one_rtt {
            keys.local += 1;
            keys.reach(keys.local);
        }
    }

    /// Returns the Key Phase bit of what is sent.
    pub(crate) fn phase(&self) -> bool {
        self.one_rtt
            .as_ref()
            .is_some_and(|keys| keys.local & 1 == 1)
    }

    /// Returns how many generations the peer's packets have gone through.
    pub(crate) fn remote_generation(&self) -> usize {
        self.one_rtt.as_ref().map_or(0, |keys| keys.remote)
    }

    /// Seals a packet; `None` without keys of its level.
    pub(crate) fn seal(&self, plain: &Plain<'_>) -> Option<Vec<u8>> {
        match plain.level {
            Level::Initial => packet::seal(plain, &self.initial.as_ref()?.local),
            Level::ZeroRtt => packet::seal(plain, self.zero_rtt.as_ref()?),
            Level::Handshake => packet::seal(plain, &self.handshake.as_ref()?.local),
            Level::OneRtt => {
                let keys = self.one_rtt.as_ref()?;
                plain.seal(&*keys.first.local.header, keys.local_key())
            }
        }
    }

    /// Opens a packet, whose number starts at `number_at`. `largest` is the largest number
    /// received in its space.
    pub(crate) fn open(
        &mut self,
        level: Level,
        packet: &mut [u8],
        number_at: usize,
        largest: Option<u64>,
    ) -> Option<Opened> {
        let header_key = match level {
            Level::Initial => &self.initial.as_ref()?.remote.header,
            Level::ZeroRtt => return None,
            Level::Handshake => &self.handshake.as_ref()?.remote.header,
            Level::OneRtt => &self.one_rtt.as_ref()?.first.remote.header,
        };
        let (truncated, len) = packet::unprotect(packet, number_at, &**header_key)?;
        let number = packet::recover_number(truncated, len, largest);
        let header_len = number_at + len;
        let first = *packet.first()?;
        let opened = |payload: &[u8], updated| Opened {
            number,
            payload: payload.to_vec(),
            first,
            updated,
        };
        let plain_key = match level {
            Level::Initial => &*self.initial.as_ref()?.remote.packet,
            Level::Handshake => &*self.handshake.as_ref()?.remote.packet,
            Level::ZeroRtt => return None,
            Level::OneRtt => return self.open_one_rtt(packet, header_len, number, opened),
        };
        let payload = packet::open(packet, header_len, number, plain_key)?;
        Some(opened(payload, false))
    }

    fn open_one_rtt(
        &mut self,
        packet: &mut [u8],
        header_len: usize,
        number: u64,
        opened: impl Fn(&[u8], bool) -> Opened,
    ) -> Option<Opened> {
        let keys = self.one_rtt.as_mut()?;
        let phase = usize::from(packet.first()? & KEY_PHASE != 0);
        keys.reach(keys.remote + 1);
        let candidates = match phase == keys.remote & 1 {
            true => [Some(keys.remote), None],
            false => [Some(keys.remote + 1), keys.remote.checked_sub(1)],
        };
        for generation in candidates.into_iter().flatten() {
            // A failed attempt leaves the bytes undefined.
            let mut copy = packet.to_vec();
            let key = keys.remote_key(generation);
            let Some(payload) = packet::open(&mut copy, header_len, number, key) else {
                continue;
            };
            let result = opened(payload, generation > keys.remote);
            keys.remote = keys.remote.max(generation);
            // Who sees an update has to update too (RFC 9001 §6.2).
            if self.follows {
                keys.local = keys.local.max(keys.remote);
            }
            return Some(result);
        }
        None
    }
}
