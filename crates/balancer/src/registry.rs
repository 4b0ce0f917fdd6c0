//! The backends as they were configured, and what was changed by hand since.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use clearway_quic::cid::quic_lb::Config;

use crate::backend::{Backend, BackendId, BackendState};
use crate::plan::{Plan, PlanError};
use crate::settings::BackendSettings;

/// The backends as they were configured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registry {
    backends: Vec<(BackendId, BackendSettings)>,
    quic_lb: Vec<Config>,
    /// States that were set by hand. They stay when the configuration changes, unless it gives
    /// the backend another state than before.
    set: HashMap<BackendId, BackendState>,
    next: u16,
}

impl Registry {
    /// Takes over a new configuration. A backend keeps its number by its address.
    pub(crate) fn configure(&mut self, backends: Vec<BackendSettings>, quic_lb: Vec<Config>) {
        let mut configured = Vec::with_capacity(backends.len());
        let mut set = HashMap::new();
        let mut used: HashSet<BackendId> = self.backends.iter().map(|(id, _)| *id).collect();
        for backend in backends {
            let mut known = self.backends.iter();
            let known = known.find(|(_, known)| known.address == backend.address);
            let id = known.map_or_else(|| free_number(&mut self.next, &mut used), |(id, _)| *id);
            if let Some(state) = self.set.get(&id)
                && known.is_some_and(|(_, known)| known.state == backend.state)
            {
                set.insert(id, *state);
            }
            configured.push((id, backend));
        }
        self.backends = configured;
        self.set = set;
        self.quic_lb = quic_lb;
    }

    /// Sets the state of the backend with this name. Returns whether there is one.
    pub(crate) fn set_state(&mut self, name: &str, state: BackendState) -> bool {
        let mut backends = self.backends.iter();
        let named = backends.find(|(_, backend)| backend.name == name);
        let Some((id, _)) = named else {
            return false;
        };
        self.set.insert(*id, state);
        true
    }

    /// Returns the backends' addresses.
    pub(crate) fn addresses(&self) -> Vec<(BackendId, SocketAddr)> {
        let backends = self.backends.iter();
        backends
            .map(|(id, backend)| (*id, backend.address))
            .collect()
    }

    pub(crate) fn plan(&self, is_up: impl Fn(BackendId) -> bool) -> Result<Plan, PlanError> {
        let backends = self.backends.iter().map(|(id, backend)| Backend {
            id: *id,
            name: backend.name.clone(),
            address: backend.address,
            weight: backend.weight,
            state: if is_up(*id) {
                self.set.get(id).copied().unwrap_or(backend.state)
            } else {
                BackendState::Down
            },
            server_ids: backend.server_ids.clone(),
        });
        Plan::new(backends.collect(), self.quic_lb.iter().cloned())
    }
}

/// Returns the number that was not used for longest. What the tables still know of its former backend
/// is forgotten by then: there are 65,536.
fn free_number(next: &mut u16, used: &mut HashSet<BackendId>) -> BackendId {
    // More backends than that are not told apart, but they are not waited for either.
    for _ in 0..=u16::MAX {
        let id = BackendId(*next);
        *next = next.wrapping_add(1);
        if used.insert(id) {
            return id;
        }
    }
    BackendId(*next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backend(port: u16, state: BackendState) -> BackendSettings {
        BackendSettings {
            name: format!("b{port}"),
            address: SocketAddr::from(([10, 0, 0, 1], port)),
            weight: 1,
            state,
            server_ids: Vec::new(),
        }
    }

    fn states(registry: &Registry) -> Vec<BackendState> {
        let plan = registry.plan(|_| true).unwrap();
        plan.backends()
            .iter()
            .map(|backend| backend.state)
            .collect()
    }

    #[test]
    fn state_set_by_hand_survives_a_change_of_the_configuration() {
        use BackendState::{Active, Draining};
        let mut registry = Registry::default();
        registry.configure(vec![backend(1, Active), backend(2, Active)], Vec::new());
        assert!(registry.set_state("b1", Draining));
        assert!(!registry.set_state("b3", Draining));
        let three = |first| vec![backend(3, Active), backend(1, first), backend(2, Active)];
        registry.configure(three(Active), Vec::new());
        assert_eq!(states(&registry), [Active, Draining, Active]);
        // Once the configuration says so itself, it decides.
        registry.configure(three(Draining), Vec::new());
        registry.configure(three(Active), Vec::new());
        assert_eq!(states(&registry), [Active, Active, Active]);
    }

    #[test]
    fn removed_backend_is_forgotten() {
        let mut registry = Registry::default();
        registry.configure(vec![backend(1, BackendState::Active)], Vec::new());
        assert!(registry.set_state("b1", BackendState::Draining));
        registry.configure(Vec::new(), Vec::new());
        registry.configure(vec![backend(1, BackendState::Active)], Vec::new());
        assert_eq!(states(&registry), [BackendState::Active]);
        assert_eq!(
            registry.addresses()[0].0,
            BackendId(1),
            "numbers are not used again soon"
        );
    }

    /// As many servers come and go in some weeks of a cluster.
    #[test]
    fn backends_have_different_numbers_after_any_number_of_changes() {
        let mut registry = Registry::default();
        let stays = backend(1, BackendState::Active);
        for _ in 0..70_000_u32 {
            registry.configure(vec![stays.clone()], Vec::new());
            let comes = [2, 3].map(|port| backend(port, BackendState::Active));
            registry.configure(
                [std::slice::from_ref(&stays), &comes[..]].concat(),
                Vec::new(),
            );
        }
        let ids: HashSet<BackendId> = registry.addresses().iter().map(|(id, _)| *id).collect();
        assert_eq!(ids.len(), 3);
        assert!(ids.contains(&BackendId(0)));
    }
}
