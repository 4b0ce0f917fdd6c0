//! Named network profiles.

use crate::spec::SpecError;
use crate::{LinkConfig, Path};

/// A named network profile.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// Its name.
    pub name: &'static str,
    /// A description in one line.
    pub about: &'static str,
    /// From client to server.
    up: &'static str,
    /// From server to client.
    down: &'static str,
}

/// All profiles. RTTs are two-way, so each direction delays by half.
pub const PROFILES: &[Profile] = &[
    Profile {
        name: "death_spiral",
        about: "100 Mbit/s, 10 ms, 250 packets; 30 % loss to the client for the first 2 s",
        up: "clock=first-packet rate=100M delay=5ms queue=250",
        down: "clock=first-packet rate=100M delay=5ms queue=250 loss=30%@0s-2s",
    },
    Profile {
        name: "death_spiral_ticks",
        about: "death_spiral, released on 1 ms ticks so that bursts arrive together",
        up: "clock=first-packet rate=100M delay=5ms queue=250 tick=1ms",
        down: "clock=first-packet rate=100M delay=5ms queue=250 tick=1ms loss=30%@0s-2s",
    },
    Profile {
        name: "interop",
        about: "the interop runner's path: 10 Mbit/s, 30 ms, 25 packets",
        up: "rate=10M delay=15ms queue=25",
        down: "rate=10M delay=15ms queue=25",
    },
    Profile {
        name: "transfer_loss",
        about: "interop with 2 % loss both ways, at most 3 in a row",
        up: "rate=10M delay=15ms queue=25 loss=2% burst=3",
        down: "rate=10M delay=15ms queue=25 loss=2% burst=3",
    },
    Profile {
        name: "handshake_loss",
        about: "interop with 30 % loss both ways, at most 3 in a row",
        up: "rate=10M delay=15ms queue=25 loss=30% burst=3",
        down: "rate=10M delay=15ms queue=25 loss=30% burst=3",
    },
    Profile {
        name: "blackhole_2s",
        about: "10 Mbit/s, 80 ms, 80 ms of queue; nothing arrives from 2 s to 4 s",
        up: "clock=first-packet rate=10M delay=40ms queue=100KB blackhole=2s-4s",
        down: "clock=first-packet rate=10M delay=40ms queue=100KB blackhole=2s-4s",
    },
    Profile {
        name: "reorder",
        about: "50 Mbit/s, 40 ms; 5 % of packets are half an RTT late",
        up: "rate=50M delay=20ms queue=250KB reorder=5%:20ms",
        down: "rate=50M delay=20ms queue=250KB reorder=5%:20ms",
    },
    Profile {
        name: "wifi_jitter",
        about: "10 Mbit/s, 2 ms, up to 12.5 ms of jitter in order",
        up: "rate=10M delay=1ms queue=100 jitter=12.5ms",
        down: "rate=10M delay=1ms queue=100 jitter=12.5ms",
    },
    Profile {
        name: "geo_sat",
        about: "a satellite: 250 Mbit/s down, 3 Mbit/s up, 600 ms",
        up: "rate=3M delay=300ms queue=225KB",
        down: "rate=250M delay=300ms queue=18750KB",
    },
    Profile {
        name: "dsl",
        about: "40 Mbit/s down, 5 Mbit/s up, 20 ms, 100 ms of queue",
        up: "rate=5M delay=10ms queue=62500B",
        down: "rate=40M delay=10ms queue=500KB",
    },
    Profile {
        name: "wifi_suspend",
        about: "10 Mbit/s, 6 ms; the radio holds everything for 260 ms after a second",
        up: "clock=first-packet rate=10M delay=3ms queue=350KB freeze=1s-1.26s",
        down: "clock=first-packet rate=10M delay=3ms queue=350KB freeze=1s-1.26s",
    },
    Profile {
        name: "ack_aggregation",
        about: "50 Mbit/s, 40 ms; what goes up arrives in slots of 25 ms",
        up: "rate=50M delay=20ms queue=250KB slot=25ms",
        down: "rate=50M delay=20ms queue=250KB",
    },
    Profile {
        name: "ack_thinning",
        about: "50 Mbit/s, 40 ms; of ten small packets up nine are dropped",
        up: "rate=50M delay=20ms queue=250KB thin=10",
        down: "rate=50M delay=20ms queue=250KB",
    },
    Profile {
        name: "policer",
        about: "a 100 Mbit/s line, 40 ms, with a 10 Mbit/s token bucket of 100 KB down",
        up: "rate=100M delay=20ms queue=500KB",
        down: "police=10M:100KB rate=100M delay=20ms queue=500KB",
    },
    Profile {
        name: "codel_ecn",
        about: "50 Mbit/s, 40 ms, CoDel that marks",
        up: "rate=50M delay=20ms queue=1000 aqm=codel",
        down: "rate=50M delay=20ms queue=1000 aqm=codel",
    },
    Profile {
        name: "fq_codel",
        about: "50 Mbit/s, 40 ms, FQ-CoDel",
        up: "rate=50M delay=20ms queue=10240 aqm=fq_codel",
        down: "rate=50M delay=20ms queue=10240 aqm=fq_codel",
    },
    Profile {
        name: "dualq_l4s",
        about: "10 Mbit/s, 20 ms, a dual queue for L4S",
        up: "rate=10M delay=10ms queue=250KB aqm=dualq",
        down: "rate=10M delay=10ms queue=250KB aqm=dualq",
    },
    Profile {
        name: "cellular",
        about: "about 12 Mbit/s, 50 ms, changing tenfold, with outages up to 500 ms",
        up: "rate=5M delay=25ms queue=250KB",
        down: "trace=random:seed=24 delay=25ms queue=500KB",
    },
    Profile {
        name: "leo_handover",
        about: "a low satellite: 100 Mbit/s down, 15 up; every 15 s another path after 100 ms",
        up: "clock=first-packet rate=15M queue=65KB delay=12.5ms,27.5ms@15s,17.5ms@30s,12.5ms@45s,\
             27.5ms@60s,17.5ms@75s freeze=15s-15.1s,30s-30.1s,45s-45.1s,60s-60.1s,75s-75.1s",
        down: "clock=first-packet rate=100M queue=440KB delay=12.5ms,27.5ms@15s,17.5ms@30s,\
               12.5ms@45s,27.5ms@60s,17.5ms@75s \
               freeze=15s-15.1s,30s-30.1s,45s-45.1s,60s-60.1s,75s-75.1s",
    },
];

const EXPECTED: &str = "one of death_spiral, death_spiral_ticks, interop, transfer_loss, \
                     handshake_loss, blackhole_2s, reorder, wifi_jitter, geo_sat, dsl, wifi_suspend, \
                     ack_aggregation, ack_thinning, policer, codel_ecn, fq_codel, dualq_l4s, \
                     cellular, leo_handover";

impl Profile {
    /// Returns the profile called `name`.
    ///
    /// # Errors
    /// If there is no such profile; the message lists all.
    pub fn named(name: &str) -> Result<&'static Self, SpecError> {
        PROFILES
            .iter()
            .find(|profile| profile.name == name)
            .ok_or_else(|| SpecError::new("profile", name, "unknown name", EXPECTED))
    }

    /// The settings of the link from client to server, for
    /// [`LinkConfig::apply`].
    #[must_use]
    pub const fn up_settings(&self) -> &'static str {
        self.up
    }

    /// The settings of the link from server to client.
    #[must_use]
    pub const fn down_settings(&self) -> &'static str {
        self.down
    }

    /// The link from client to server.
    ///
    /// # Errors
    /// Never for the profiles in [`PROFILES`]: a test parses them all.
    pub fn up(&self) -> Result<LinkConfig, SpecError> {
        self.up.parse()
    }

    /// The link from server to client.
    ///
    /// # Errors
    /// Like [`Profile::up`].
    pub fn down(&self) -> Result<LinkConfig, SpecError> {
        self.down.parse()
    }

    /// Both links as a path.
    ///
    /// # Errors
    /// Like [`Profile::up`].
    pub fn path(&self, seed: u64) -> Result<Path, SpecError> {
        Ok(Path::new(self.up()?, self.down()?, seed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_profiles_parse_and_are_listed() {
        for profile in PROFILES {
            profile.path(1).unwrap();
            assert!(EXPECTED.contains(profile.name), "{}", profile.name);
            assert_eq!(Profile::named(profile.name).unwrap().name, profile.name);
        }
        let error = Profile::named("lan").unwrap_err().to_string();
        assert!(error.contains("unknown name; expected one of death_spiral"));
    }
}
