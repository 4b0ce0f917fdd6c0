//! Consistent hashing: which backend a new connection goes to.

use std::hash::{BuildHasher as _, Hasher as _};

use foldhash::fast::FixedState;

use crate::backend::{Backend, BackendId, BackendState};

/// Number of slots: a prime, as in the paper (Maglev, NSDI 2016 §3.4). With a hundred backends each
/// has about 655, so that shares differ by a percent or two at most.
pub const TABLE_SIZE: usize = 65_537;

/// Seeds of the two hashes of a backend's name. They are the same in every process, so that
/// several balancers with the same backends agree.
const SEEDS: (u64, u64) = (0x636c_6561_7277_6179, 0x6d61_676c_6576_3635);

/// A lookup table that assigns hashes to backends by their weights. When a backend leaves, its
/// slots are divided among the others, and few other slots change.
#[derive(Clone, Debug)]
pub struct Maglev {
    slots: Box<[BackendId]>,
}

/// A backend's preferred order of slots, and its claim to the next.
struct Permutation {
    id: BackendId,
    next: usize,
    skip: usize,
    /// Slots it may take, in units of `1 / greatest weight`.
    credit: u64,
    weight: u64,
}

impl Maglev {
    /// Builds the table of the active backends. It depends on their addresses and weights, not on
    /// their order or numbers.
    #[must_use]
    pub fn new(backends: &[Backend]) -> Self {
        let mut active: Vec<&Backend> = backends
            .iter()
            .filter(|backend| backend.state == BackendState::Active)
            .collect();
        active.sort_by_key(|backend| backend.address);
        let greatest = active.iter().map(|backend| backend.weight.max(1)).max();
        let mut order: Vec<Permutation> = active.into_iter().map(Permutation::new).collect();
        let Some(greatest) = greatest.map(u64::from) else {
            return Self {
                slots: Box::default(),
            };
        };
        let mut slots: Vec<Option<BackendId>> = vec![None; TABLE_SIZE];
        let mut free = TABLE_SIZE;
        while free > 0 {
            for backend in &mut order {
                backend.credit += backend.weight;
                if backend.credit < greatest || free == 0 {
                    continue;
                }
                backend.credit -= greatest;
                backend.take_slot(&mut slots);
                free -= 1;
            }
        }
        Self {
            slots: slots.into_iter().flatten().collect(),
        }
    }

    /// Returns the backend of a hash. `None` if no backend is active.
    #[must_use]
    pub fn get(&self, hash: u64) -> Option<BackendId> {
        let index = hash.checked_rem(self.slots.len() as u64)?;
        self.slots.get(index as usize).copied()
    }

    /// Returns the backend of each slot.
    #[must_use]
    pub fn slots(&self) -> &[BackendId] {
        &self.slots
    }
}

impl Permutation {
    fn new(backend: &Backend) -> Self {
        let hash = |seed| {
            let mut hasher = FixedState::with_seed(seed).build_hasher();
            match backend.address.ip() {
                std::net::IpAddr::V4(ip) => hasher.write(&ip.octets()),
                std::net::IpAddr::V6(ip) => hasher.write(&ip.octets()),
            }
            hasher.write_u16(backend.address.port());
            hasher.finish()
        };
        let weight = u64::from(backend.weight.max(1));
        Self {
            id: backend.id,
            next: (hash(SEEDS.0) % TABLE_SIZE as u64) as usize,
            skip: (hash(SEEDS.1) % (TABLE_SIZE as u64 - 1)) as usize + 1,
            credit: 0,
            weight,
        }
    }

    /// Takes its next preferred slot that is free; there is one.
    fn take_slot(&mut self, slots: &mut [Option<BackendId>]) {
        for _ in 0..TABLE_SIZE {
            let at = self.next;
            self.next = (self.next + self.skip) % TABLE_SIZE;
            if let Some(slot @ None) = slots.get_mut(at) {
                *slot = Some(self.id);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backends(count: u16) -> Vec<Backend> {
        (0..count)
            .map(|n| Backend {
                id: BackendId(n),
                name: String::new(),
                address: format!("10.0.{}.{}:443", n / 250, n % 250).parse().unwrap(),
                weight: 1,
                state: BackendState::Active,
                server_ids: Vec::new(),
            })
            .collect()
    }

    /// Slots per backend.
    fn shares(table: &Maglev, count: usize) -> Vec<usize> {
        let mut shares = vec![0; count];
        for id in table.slots() {
            shares[usize::from(id.0)] += 1;
        }
        shares
    }

    /// The share of the other backends' slots that change when backend 0 leaves.
    fn movement(count: u16) -> f64 {
        let all = backends(count);
        let (before, after) = (Maglev::new(&all), Maglev::new(&all[1..]));
        let slots = before.slots().iter().zip(after.slots());
        let kept = slots.filter(|(before, _)| before.0 != 0);
        let (moved, total) = kept.fold((0, 0), |(moved, total), (before, after)| {
            (moved + usize::from(before != after), total + 1)
        });
        moved as f64 / f64::from(total)
    }

    #[test]
    fn slots_are_divided_evenly() {
        for count in [1, 2, 10, 100] {
            let shares = shares(&Maglev::new(&backends(count)), usize::from(count));
            let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
            assert!(most - least <= 1, "{count}: {least} to {most}");
        }
    }

    #[test]
    fn slots_follow_weights() {
        let mut all = backends(3);
        all[1].weight = 2;
        all[2].weight = 5;
        let shares = shares(&Maglev::new(&all), 3);
        for (share, weight) in shares.iter().zip([1.0, 2.0, 5.0]) {
            let expected = TABLE_SIZE as f64 * weight / 8.0;
            assert!((*share as f64 - expected).abs() < 5.0, "{shares:?}");
        }
    }

    /// The expected movements are 0.20 %, 0.61 % and 0.62 %.
    #[test]
    fn few_slots_of_other_backends_move_when_one_leaves() {
        for (count, bound) in [(10, 0.005), (100, 0.012), (1_000, 0.012)] {
            let moved = movement(count);
            assert!(moved < bound, "{count} backends: {moved}");
        }
    }

    #[test]
    fn table_does_not_depend_on_order() {
        let all = backends(20);
        let mut reversed = all.clone();
        reversed.reverse();
        assert_eq!(Maglev::new(&all).slots(), Maglev::new(&reversed).slots());
    }

    #[test]
    fn only_active_backends_get_new_connections() {
        let mut all = backends(3);
        all[0].state = BackendState::Draining;
        all[1].state = BackendState::Down;
        let table = Maglev::new(&all);
        assert!(table.slots().iter().all(|id| id.0 == 2));
        all[2].state = BackendState::Down;
        let table = Maglev::new(&all);
        assert_eq!(table.get(5), None);
    }
}
