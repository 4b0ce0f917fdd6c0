//! Genomes as scenario files.

use core::fmt::Write as _;

use clearway_links::{Probability, Span};
use core::time::Duration;

use super::envelope::Demand;
use super::genome::{
    AckPolicy, Application, Genome, Neighbours, QueueLimitGene, QueueManagement, Step,
};
use crate::scenario::{Case, Scenario, ScenarioError, Size};

/// Bytes of each write of a paced application.
const CHUNK: u64 = 1_200;

/// The words around a scenario that do not change what happens in it.
#[derive(Clone, Copy, Debug)]
pub struct Heading<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its title.
    pub title: &'a str,
    /// Why it exists.
    pub explanation: &'a str,
    /// The controllers to run.
    pub controllers: &'a [String],
}

impl Genome {
    /// The genome as a scenario file with the bars of `demands`.
    #[must_use]
    pub fn scenario(&self, heading: &Heading<'_>, demands: &[Demand]) -> String {
        let mut text = format!(
            "name = {:?}\ntitle = {:?}\nsource = \"clearway lab hunt\"\n",
            heading.name, heading.title
        );
        if !heading.explanation.is_empty() {
            let _ = writeln!(text, "explanation = {:?}", heading.explanation);
        }
        let _ = writeln!(text, "controllers = {:?}", heading.controllers);
        let half = self.millis(500);
        let _ = writeln!(
            text,
            "duration = \"{}s\"\nwarmup = \"{half}ms\"",
            self.seconds
        );
        for demand in demands {
            if let Some((from, rate)) = demand.recovery {
                let _ = writeln!(
                    text,
                    "recovery_from = [\"{from}ms\"]\nrecovery_rate = \"{rate}k\""
                );
            }
        }
        self.network(&mut text);
        self.flow(&mut text);
        for neighbours in &self.neighbours {
            self.more(neighbours, &mut text);
        }
        self.transport(&mut text);
        text.push_str("\n[pass]\n");
        for demand in demands {
            let _ = writeln!(text, "{}", demand.bar());
        }
        text
    }

    /// The genome as a case for one controller, with the bars of `demands`.
    ///
    /// # Errors
    /// Never for a genome that [`Bounds::repair`](super::Bounds::repair) has seen.
    pub fn case(&self, controller: &str, demands: &[Demand]) -> Result<Case, ScenarioError> {
        let heading = Heading {
            name: "hunt",
            title: "",
            explanation: "",
            controllers: &[controller.to_owned()],
        };
        let text = self.scenario(&heading, demands);
        let scenario = Scenario::parse("hunt", &text)?;
        let mut cases = scenario.cases(Size::Full, controller)?;
        Ok(cases.swap_remove(0))
    }

    fn network(&self, text: &mut String) {
        let delay = self.delay();
        let rate = self.rate_text();
        let mut down = format!("rate={rate} delay={delay} queue={}", self.queue_text());
        let managed = match self.management {
            QueueManagement::DropTail => String::new(),
            QueueManagement::StepMarking(millis) => format!(" mark={millis}ms"),
            QueueManagement::Codel => " aqm=codel".to_owned(),
            QueueManagement::FqCodel => " aqm=fq_codel".to_owned(),
            QueueManagement::Pie => " aqm=pie".to_owned(),
            QueueManagement::DualQ => " aqm=dualq".to_owned(),
        };
        down.push_str(&managed);
        self.impaired(&mut down);
        let uplink = (self.rate * u64::from(self.uplink) / 1_000).max(1);
        let mut up = format!("rate={uplink}k delay={delay} queue=1000");
        if self.ack_loss > 0 {
            let _ = write!(up, " loss={}", share(self.ack_loss));
        }
        if self.ack_slots > 0 {
            let _ = write!(up, " slot={}", micros(self.ack_slots.into()));
        }
        if self.ack_thinning > 1 {
            let _ = write!(up, " thin={}", self.ack_thinning);
        }
        let _ = write!(text, "\n[network]\nup = \"{up}\"\ndown = \"{down}\"\n");
    }

    /// Half of the RTT with its changes.
    fn delay(&self) -> String {
        let half = |rtt: u64| micros(rtt / 2);
        let mut text = half(self.rtt.into());
        for step in &self.rtt_steps {
            let _ = write!(
                text,
                ",{}@{}ms",
                half(self.rtt_at(step.at)),
                self.millis(step.at)
            );
        }
        text
    }

    fn rate_text(&self) -> String {
        let mut text = format!("{}k", self.rate);
        for Step { at, .. } in &self.rate_steps {
            let _ = write!(text, ",{}k@{}ms", self.rate_at(*at), self.millis(*at));
        }
        text
    }

    fn queue_text(&self) -> String {
        match self.queue {
            QueueLimitGene::Packets(packets) => packets.to_string(),
            QueueLimitGene::Millis(millis) => format!("{millis}ms"),
        }
    }

    fn impaired(&self, down: &mut String) {
        if self.loss > 0 {
            let _ = write!(down, " loss={}", share(self.loss));
        }
        if let Some(bursts) = self.bursts {
            let length = micros(bursts.length.into());
            let _ = write!(down, " gilbert={}ms:{length}", bursts.every);
        }
        if let Some(late) = self.late {
            let _ = write!(
                down,
                " reorder={}:{}",
                share(late.ppm),
                micros(late.by.into())
            );
        }
        if let Some(jitter) = self.jitter {
            let order = if jitter.reorders { ":unordered" } else { "" };
            let _ = write!(down, " jitter={}{order}", micros(jitter.max.into()));
        }
        if let Some(policer) = self.policer {
            let rate = (self.rate * u64::from(policer.rate) / 1_000).max(1);
            let _ = write!(down, " police={rate}k:{}KB", policer.bucket);
        }
        if self.slots > 0 {
            let _ = write!(down, " slot={}", micros(self.slots.into()));
        }
        let windows = self.outages.iter().map(|outage| {
            let from = self.millis(outage.at);
            format!("{from}ms-{}ms", from + u64::from(outage.millis))
        });
        let windows: Vec<String> = windows.collect();
        if !windows.is_empty() {
            let _ = write!(down, " blackhole={}", windows.join(","));
        }
    }

    fn flow(&self, text: &mut String) {
        text.push_str("\n[[flows]]\n");
        match self.application {
            Application::Bulk => text.push_str("traffic = \"download\"\n"),
            Application::OnOff { kilobytes, gap } => {
                // More than fit, so that they last until the end.
                let each = u64::from(gap) + u64::from(kilobytes) * 8 / self.rate.max(1);
                let count = u64::from(self.seconds) * 1_000 / each.max(10) + 1;
                let count = count.min(10_000);
                let _ = writeln!(
                    text,
                    "traffic = \"on-off\"\nbytes = \"{kilobytes}kB\"\ngap = \"{gap}ms\"\n\
                     count = {count}"
                );
            }
            Application::Paced { rate, burst } => {
                let kbits = (self.rate * u64::from(rate) / 1_000).max(1);
                let interval = (CHUNK * 8_000 / kbits).max(1);
                let _ = writeln!(
                    text,
                    "traffic = \"paced\"\nchunk = {CHUNK}\ninterval = \"{}\"",
                    micros(interval)
                );
                if burst < 1_000 {
                    let _ = writeln!(
                        text,
                        "bursts = [\"{}ms\"]\nburst_bytes = \"1GB\"",
                        self.millis(burst)
                    );
                }
            }
        }
    }

    fn more(&self, neighbours: &Neighbours, text: &mut String) {
        let _ = write!(
            text,
            "\n[[flows]]\ntraffic = \"download\"\nflows = {}\nstart = \"{}ms\"\n",
            neighbours.count,
            self.millis(neighbours.start)
        );
        if let Some(controller) = &neighbours.controller {
            let _ = writeln!(text, "controller = {controller:?}");
        }
    }

    fn transport(&self, text: &mut String) {
        let acks = match self.acks {
            AckPolicy::Asked => "asked",
            AckPolicy::Every => "every",
            AckPolicy::EverySecond => "every-2",
            AckPolicy::EveryTenth => "every-10",
        };
        let ecn = self.ecn;
        // Neither an outage nor a path that many flows share ends a connection: that it takes
        // long is measured.
        let _ = writeln!(
            text,
            "\n[transport]\nacks = {acks:?}\necn = {ecn}\nidle_timeout = \"600s\"\n\
             handshake_timeout = \"600s\""
        );
    }
}

/// Parts per million in percent.
fn share(ppm: u32) -> Probability {
    Probability::from_parts(ppm.saturating_mul(1_000)).unwrap_or(Probability::ALWAYS)
}

fn micros(micros: u64) -> String {
    Span(Duration::from_micros(micros)).to_string()
}
