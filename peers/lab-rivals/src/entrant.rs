//! Who takes part.

use std::rc::Rc;

use clearway_lab::run::RunObservers;
use clearway_lab::scenario::{CONTROLLERS, Case, Flow, Scenario};
use clearway_lab::stack::{Protocol, Stack, StackFactory, StackSetup};

use crate::engine::{Engine, Rival};
use crate::noq::Noq;
use crate::quinn::Quinn;
use crate::settings::{Controller, Settings};

/// A stack with one of its controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entrant {
    /// Ours, by the controller's name.
    Clearway(&'static str),
    /// quinn-proto.
    Quinn(Controller),
    /// noq-proto, whose BBR is version 3.
    Noq(Controller),
}

/// Everybody, in the order of the table.
pub(crate) const ALL: &[Entrant] = &[
    Entrant::Clearway("newreno"),
    Entrant::Clearway("cubic"),
    Entrant::Clearway("bbr"),
    Entrant::Clearway("prague"),
    Entrant::Quinn(Controller::NewReno),
    Entrant::Quinn(Controller::Cubic),
    Entrant::Quinn(Controller::Bbr),
    Entrant::Noq(Controller::NewReno),
    Entrant::Noq(Controller::Cubic),
    Entrant::Noq(Controller::Bbr),
];

impl Entrant {
    /// `quinn/cubic`.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Clearway(controller) => format!("clearway/{controller}"),
            Self::Quinn(controller) => format!("quinn/{}", controller.name()),
            Self::Noq(Controller::Bbr) => "noq/bbr3".to_owned(),
            Self::Noq(controller) => format!("noq/{}", controller.name()),
        }
    }

    /// The controller of the catalogue whose bars it is held to.
    pub(crate) const fn judged_as(self) -> &'static str {
        match self {
            Self::Clearway(controller) => controller,
            Self::Quinn(controller) | Self::Noq(controller) => controller.name(),
        }
    }

    /// Whether it is one of ours.
    pub(crate) const fn is_ours(self) -> bool {
        match self {
            Self::Clearway(_) => true,
            Self::Quinn(_) | Self::Noq(_) => false,
        }
    }

    /// Whether `scenario` is for it: for its controller, or for all.
    pub(crate) fn takes_part_in(self, scenario: &Scenario) -> bool {
        let named = |name: &str| scenario.controllers.iter().any(|own| own == name);
        named(self.judged_as()) || CONTROLLERS.iter().all(|name| named(name))
    }

    /// Whether its streams can be what the flows ask for: HTTP/3 is ours alone here.
    pub(crate) fn carries(self, case: &Case) -> bool {
        let raw = |flow: &Flow| flow.protocol == Protocol::Raw;
        self.is_ours() || case.flows.iter().all(raw)
    }

    /// Puts it into a run of `case`.
    pub(crate) fn extras(self, case: &Case) -> RunObservers {
        let stack: Option<Rc<dyn StackFactory>> = match self {
            Self::Clearway(_) => None,
            Self::Quinn(controller) => Some(self.factory(case, controller, rival::<Quinn>)),
            Self::Noq(controller) => Some(self.factory(case, controller, rival::<Noq>)),
        };
        RunObservers {
            stack,
            ..RunObservers::default()
        }
    }

    fn factory(self, case: &Case, controller: Controller, build: Build) -> Rc<dyn StackFactory> {
        Rc::new(Factory {
            name: self.name(),
            settings: Settings::of(case, controller),
            build,
        })
    }
}

type Build = fn(&Settings, &StackSetup) -> Box<dyn Stack>;

fn rival<E: Engine + 'static>(settings: &Settings, birth: &StackSetup) -> Box<dyn Stack>
where
    E::Connection: 'static,
{
    Box::new(Rival::<E>::new(settings, birth))
}

struct Factory {
    name: String,
    settings: Settings,
    build: Build,
}

impl StackFactory for Factory {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn build(&self, birth: &StackSetup) -> Box<dyn Stack> {
        (self.build)(&self.settings, birth)
    }
}

#[cfg(test)]
mod tests {
    use clearway_lab::run::run_case;
    use clearway_lab::scenario::{Size, find};

    use super::*;

    fn run(entrant: Entrant, scenario: &str) -> clearway_lab::measure::Outcome {
        let scenario = find(scenario).expect("a scenario");
        let cases = scenario.cases(Size::Ci, entrant.judged_as());
        let case = &cases.expect("its cases")[0];
        run_case(case, 1, entrant.extras(case))
    }

    #[test]
    fn every_rival_carries_every_byte_through_a_shallow_queue() {
        for entrant in ALL.iter().filter(|entrant| !entrant.is_ours()) {
            let outcome = run(*entrant, "death_spiral");
            assert_eq!(outcome.violations, Vec::<String>::new(), "{entrant:?}");
            assert!(outcome.finished, "{entrant:?}");
            assert_eq!(outcome.controller, entrant.name());
            let sender = outcome.flows[0].sender();
            assert!(sender.window > 0 && sender.min_rtt.is_some());
            assert!(sender.packets_sent > 0 && sender.mtu >= 1_200);
            let seen = outcome.flows[0].samples.iter();
            assert!(seen.map(|sample| sample.in_flight).max() > Some(10_000));
        }
    }

    #[test]
    fn other_stack_continues_after_its_client_migrated() {
        for entrant in [
            Entrant::Quinn(Controller::Cubic),
            Entrant::Noq(Controller::Cubic),
        ] {
            let outcome = run(entrant, "migrate_slower");
            assert_eq!(outcome.violations, Vec::<String>::new(), "{entrant:?}");
        }
    }

    #[test]
    fn names_differ() {
        let mut names: Vec<String> = ALL.iter().map(|entrant| entrant.name()).collect();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }
}
