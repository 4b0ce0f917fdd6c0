//! Generators of connection IDs: random ones, and random ones that belong to one shard.

use core::time::Duration;

use crate::cid::id::{ConnectionId, MAX_CID_LEN};
use crate::cid::lengths::CidLengths;
use crate::rng::Rng;

/// Default length of our connection IDs in bytes. With 64 random bits, the probability of a
/// collision among two million connections is one in ten million.
pub const DEFAULT_CID_LEN: usize = 8;

/// Bytes of a connection ID that decide the shard.
pub const SHARD_PREFIX_LEN: usize = 8;

/// Generates the connection IDs of one endpoint.
///
/// A short header does not contain the length of its connection ID (RFC 9000 §17.3.1), so all
/// connection IDs of a generator have the same length, or their first octet tells it
/// ([`cid_lengths`](Self::cid_lengths)). [`ShardGenerator`] can wrap every implementation, also
/// that for load balancers, [`quic_lb::Generator`](crate::cid::quic_lb::Generator).
pub trait CidGenerator: core::fmt::Debug + Send {
    /// Returns a new connection ID of [`CidGenerator::cid_len`] bytes. It should be unique; a
    /// random one is.
    fn generate(&mut self, rng: &mut Rng) -> ConnectionId;

    /// Returns the length of the connection IDs that [`generate`](Self::generate) returns now, in
    /// bytes: 0 to 20.
    fn cid_len(&self) -> usize;

    /// Returns the lengths of all connection IDs in use, by their first octet. By default all
    /// have [`cid_len`](Self::cid_len) bytes. Called for every datagram.
    fn cid_lengths(&self) -> CidLengths {
        CidLengths::uniform(self.cid_len())
    }

    /// Returns how long a connection uses its connection IDs before it replaces all of them, in
    /// whole seconds, at the next packet that it receives. A quiet connection is not woken for it. By default they
    /// are never replaced, because a replacement costs a packet each way.
    fn lifetime(&self) -> Option<Duration> {
        None
    }

    /// Returns a number that changes when connection IDs generated before have to be replaced,
    /// for example because the configuration of a load balancer did. Called for every datagram.
    fn generation(&self) -> u32 {
        0
    }
}

impl CidGenerator for Box<dyn CidGenerator> {
    fn generate(&mut self, rng: &mut Rng) -> ConnectionId {
        self.as_mut().generate(rng)
    }

    fn cid_len(&self) -> usize {
        self.as_ref().cid_len()
    }

    fn cid_lengths(&self) -> CidLengths {
        self.as_ref().cid_lengths()
    }

    fn lifetime(&self) -> Option<Duration> {
        self.as_ref().lifetime()
    }

    fn generation(&self) -> u32 {
        self.as_ref().generation()
    }
}

/// Generates random connection IDs.
#[derive(Clone, Copy, Debug)]
pub struct RandomGenerator {
    len: usize,
}

impl RandomGenerator {
    /// Creates a generator of connection IDs of `len` bytes, at most 20.
    #[must_use]
    pub fn new(len: usize) -> Self {
        Self {
            len: len.min(MAX_CID_LEN),
        }
    }
}

impl Default for RandomGenerator {
    fn default() -> Self {
        Self::new(DEFAULT_CID_LEN)
    }
}

impl CidGenerator for RandomGenerator {
    fn generate(&mut self, rng: &mut Rng) -> ConnectionId {
        let mut bytes = [0; MAX_CID_LEN];
        let bytes = bytes.get_mut(..self.len).unwrap_or_default();
        rng.fill(bytes);
        ConnectionId::new(bytes).unwrap_or(ConnectionId::EMPTY)
    }

    fn cid_len(&self) -> usize {
        self.len
    }
}

/// The key of the hash that assigns connection IDs to shards. It is secret, so that an observer
/// cannot tell which connection IDs belong to one shard (RFC 9000 §5.1).
///
/// The hash uses only operations of classic BPF, so that the kernel can compute it before a
/// datagram is queued: big-endian 32-bit loads and arithmetic on 32
/// bits. With `[c]` the offset of the connection ID in the datagram (1 in a
/// short header, 6 in a long one), `X` the index register and `M` the scratch
/// memory:
///
/// ```text
/// ld [c]        xor #k0    mul #0x9e3779b1    st M[0]
/// rsh #15       tax        ld M[0]            xor x      st M[0]
/// ld [c + 4]    ldx M[0]   add x
/// xor #k1       mul #0x85ebca77               st M[0]
/// rsh #13       tax        ld M[0]            xor x
/// mod #shards   ret a
/// ```
///
/// The sockets steer by the same hash; the test vectors hold for both.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ShardKey {
    /// The key of the first 32-bit word.
    pub k0: u32,
    /// The key of the second 32-bit word.
    pub k1: u32,
}

/// A prime near 2³² divided by the golden ratio. It is odd, so that multiplication loses no
/// information, and has no pattern, so that every bit reaches the high ones.
const M1: u32 = 0x9e37_79b1;
/// A second, independent multiplier.
const M2: u32 = 0x85eb_ca77;

impl ShardKey {
    /// Creates a random key.
    pub fn new(rng: &mut Rng) -> Self {
        Self {
            k0: rng.u64() as u32,
            k1: rng.u64() as u32,
        }
    }

    /// Returns the keyed hash of the first eight bytes. A shorter connection ID is padded with
    /// zeros.
    #[must_use]
    #[inline]
    pub fn mix(&self, cid: &[u8]) -> u32 {
        let prefix = cid.first_chunk().copied().unwrap_or_else(|| {
            let mut prefix = [0; SHARD_PREFIX_LEN];
            for (to, from) in prefix.iter_mut().zip(cid) {
                *to = *from;
            }
            prefix
        });
        let words = u64::from_be_bytes(prefix);
        let (first, second) = ((words >> 32) as u32, words as u32);

        let h = (first ^ self.k0).wrapping_mul(M1);
        let h = h ^ (h >> 15);
        let h = (h.wrapping_add(second) ^ self.k1).wrapping_mul(M2);
        h ^ (h >> 13)
    }
}

impl core::fmt::Debug for ShardKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("ShardKey(..)")
    }
}

/// Returns which of `shards` a datagram with this destination connection ID belongs to. The rule
/// is the same for our connection IDs and for those that a client chose.
#[must_use]
#[inline]
pub fn shard_of(cid: &[u8], key: &ShardKey, shards: u32) -> u32 {
    key.mix(cid).checked_rem(shards).unwrap_or(0)
}

/// Generates connection IDs that belong to one shard, by drawing from another generator until the
/// hash fits. This takes about `shards` draws each, and no byte reveals the shard.
#[derive(Debug)]
pub struct ShardGenerator<G = RandomGenerator> {
    inner: G,
    key: ShardKey,
    shards: u32,
    shard: u32,
}

impl<G: CidGenerator> ShardGenerator<G> {
    /// Creates a generator for the shard number `shard`, which must be below `shards`. Returns
    /// `None` if it is not, or if the connection IDs of `inner` are shorter than
    /// [`SHARD_PREFIX_LEN`].
    #[must_use]
    pub fn new(inner: G, key: ShardKey, shards: u32, shard: u32) -> Option<Self> {
        (shard < shards && inner.cid_len() >= SHARD_PREFIX_LEN).then_some(Self {
            inner,
            key,
            shards,
            shard,
        })
    }
}

impl<G: CidGenerator> CidGenerator for ShardGenerator<G> {
    fn generate(&mut self, rng: &mut Rng) -> ConnectionId {
        // If this fails (probability e^-64), the inner generator does not vary its first bytes.
        // Steering is a hint, so a connection ID of another shard works too.
        let attempts = u64::from(self.shards) * 64;
        let mut cid = self.inner.generate(rng);
        for _ in 0..attempts {
            if shard_of(&cid, &self.key, self.shards) == self.shard {
                break;
            }
            cid = self.inner.generate(rng);
        }
        cid
    }

    fn cid_len(&self) -> usize {
        self.inner.cid_len()
    }

    fn cid_lengths(&self) -> CidLengths {
        self.inner.cid_lengths()
    }

    fn lifetime(&self) -> Option<Duration> {
        self.inner.lifetime()
    }

    fn generation(&self) -> u32 {
        self.inner.generation()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The part of a classic BPF machine that the documented program needs.
    enum Op {
        Load(usize),
        LoadMem,
        LoadXMem,
        Store,
        Tax,
        Xor(u32),
        XorX,
        AddX,
        Mul(u32),
        Rsh(u32),
        Mod(u32),
    }

    fn run(program: &[Op], datagram: &[u8]) -> u32 {
        let (mut a, mut x, mut m) = (0_u32, 0_u32, 0_u32);
        for op in program {
            match *op {
                Op::Load(at) => {
                    a = u32::from_be_bytes(datagram[at..at + 4].try_into().unwrap());
                }
                Op::LoadMem => a = m,
                Op::LoadXMem => x = m,
                Op::Store => m = a,
                Op::Tax => x = a,
                Op::Xor(k) => a ^= k,
                Op::XorX => a ^= x,
                Op::AddX => a = a.wrapping_add(x),
                Op::Mul(k) => a = a.wrapping_mul(k),
                Op::Rsh(k) => a >>= k,
                Op::Mod(k) => a %= k,
            }
        }
        a
    }

    fn documented(key: &ShardKey, at: usize, shards: u32) -> Vec<Op> {
        let fold = |by| [Op::Store, Op::Rsh(by), Op::Tax, Op::LoadMem, Op::XorX];
        let mut program = vec![Op::Load(at), Op::Xor(key.k0), Op::Mul(M1)];
        program.extend(fold(15));
        program.extend([Op::Store, Op::Load(at + 4), Op::LoadXMem, Op::AddX]);
        program.extend([Op::Xor(key.k1), Op::Mul(M2)]);
        program.extend(fold(13));
        program.push(Op::Mod(shards));
        program
    }

    #[test]
    fn classic_bpf_program_computes_same_shard() {
        let mut rng = Rng::from_seed([2; 32]);
        for shards in [1, 2, 3, 16, 61] {
            let key = ShardKey::new(&mut rng);
            let short = documented(&key, 1, shards);
            let long = documented(&key, 6, shards);
            for _ in 0..200 {
                let datagram: [u8; 32] = rng.array();
                assert_eq!(
                    run(&short, &datagram),
                    shard_of(&datagram[1..], &key, shards)
                );
                assert_eq!(
                    run(&long, &datagram),
                    shard_of(&datagram[6..14], &key, shards)
                );
            }
        }
    }

    /// The vectors that the steering of sockets documents, computed independently of this code.
    #[test]
    fn shard_hash_matches_socket_steering_vectors() {
        let key = ShardKey {
            k0: 0x0123_4567,
            k1: 0x89ab_cdef,
        };
        assert_eq!(ShardKey { k0: 0, k1: 0 }.mix(&[0; 8]), 0);
        assert_eq!(key.mix(&[0; 8]), 0x85f5_bea1);
        assert_eq!(key.mix(&[0xff; 8]), 0xed95_aa1b);
        assert_eq!(key.mix(&[0, 1, 2, 3, 4, 5, 6, 7]), 0x1c58_2f89);
        let initial = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];
        assert_eq!(key.mix(&initial), 0x9d43_7538);
    }

    #[test]
    fn generated_cids_steer_to_their_shard() {
        let mut rng = Rng::from_seed([4; 32]);
        let key = ShardKey::new(&mut rng);
        for shard in 0..8 {
            let inner = RandomGenerator::new(12);
            let mut generator = ShardGenerator::new(inner, key, 8, shard).unwrap();
            assert_eq!(generator.cid_len(), 12);
            for _ in 0..50 {
                let cid = generator.generate(&mut rng);
                assert_eq!(cid.len(), 12);
                assert_eq!(shard_of(&cid, &key, 8), shard);
            }
        }
    }

    #[test]
    fn random_cids_are_spread_evenly_over_shards() {
        let mut rng = Rng::from_seed([5; 32]);
        let key = ShardKey::new(&mut rng);
        let mut seen = [0_u32; 6];
        let mut generator = RandomGenerator::default();
        for _ in 0..6_000 {
            let cid = generator.generate(&mut rng);
            seen[shard_of(&cid, &key, 6) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| (850..1_150).contains(&n)), "{seen:?}");
    }

    /// A client that counts upwards must not fill one shard.
    #[test]
    fn sequential_cids_are_spread_over_shards() {
        let mut rng = Rng::from_seed([6; 32]);
        for place in [0, 32] {
            let key = ShardKey::new(&mut rng);
            let mut seen = [0_u32; 4];
            for n in 0..4_000_u64 {
                let cid = (n << place).to_be_bytes();
                seen[shard_of(&cid, &key, 4) as usize] += 1;
            }
            assert!(seen.iter().all(|&n| (500..1_500).contains(&n)), "{seen:?}");
        }
    }

    #[test]
    fn different_key_assigns_different_shards() {
        let mut rng = Rng::from_seed([7; 32]);
        let (a, b) = (ShardKey::new(&mut rng), ShardKey::new(&mut rng));
        let moved = (0..1_000)
            .filter(|_| {
                let cid: [u8; 8] = rng.array();
                shard_of(&cid, &a, 2) != shard_of(&cid, &b, 2)
            })
            .count();
        assert!((400..600).contains(&moved), "{moved}");
    }

    #[test]
    fn shard_out_of_range_and_short_cid_are_rejected() {
        let key = ShardKey::new(&mut Rng::from_seed([8; 32]));
        assert!(ShardGenerator::new(RandomGenerator::default(), key, 4, 4).is_none());
        assert!(ShardGenerator::new(RandomGenerator::new(7), key, 4, 0).is_none());
        assert_eq!(RandomGenerator::new(99).cid_len(), MAX_CID_LEN);
        assert_eq!(shard_of(&[1; 8], &key, 0), 0);
    }

    /// A generator stuck on one value must not hang the endpoint.
    #[test]
    fn generator_of_a_constant_cid_does_not_hang() {
        #[derive(Debug)]
        struct Stuck;
        impl CidGenerator for Stuck {
            fn generate(&mut self, _: &mut Rng) -> ConnectionId {
                ConnectionId::new(&[9; 8]).unwrap()
            }
            fn cid_len(&self) -> usize {
                8
            }
        }
        let mut rng = Rng::from_seed([9; 32]);
        let key = ShardKey::new(&mut rng);
        let other = (shard_of(&[9; 8], &key, 4) + 1) % 4;
        let mut generator = ShardGenerator::new(Stuck, key, 4, other).unwrap();
        assert_eq!(&*generator.generate(&mut rng), &[9; 8]);
    }

    #[test]
    fn boxed_generator_is_the_generator_within() {
        #[derive(Debug)]
        struct Changing;
        impl CidGenerator for Changing {
            fn generate(&mut self, _: &mut Rng) -> ConnectionId {
                ConnectionId::new(&[3; 11]).unwrap()
            }
            fn cid_len(&self) -> usize {
                11
            }
            fn lifetime(&self) -> Option<Duration> {
                Some(Duration::from_secs(5))
            }
            fn generation(&self) -> u32 {
                7
            }
        }
        let mut boxed: Box<dyn CidGenerator> = Box::new(Changing);
        let said = (boxed.cid_len(), boxed.lifetime(), boxed.generation());
        assert_eq!(said, (11, Some(Duration::from_secs(5)), 7));
        assert_eq!(boxed.cid_lengths(), Changing.cid_lengths());
        assert_eq!(&*boxed.generate(&mut Rng::from_seed([1; 32])), &[3; 11]);
        // One that never changes is of generation 0 for ever.
        let plain: Box<dyn CidGenerator> = Box::new(RandomGenerator::default());
        assert_eq!((plain.lifetime(), plain.generation()), (None, 0));
    }
}
