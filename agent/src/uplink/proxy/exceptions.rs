//! Hosts that are reached without the environment's proxy.

use std::net::IpAddr;

use crate::uplink::address::Coordinator;

/// NO_PROXY: hosts, domains (with or without a leading dot, each with everything below), addresses
/// and networks, separated by commas; `*` is everything. There is no standard; this is what the
/// common programs agree on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Exceptions(Vec<String>);

impl Exceptions {
    pub(super) fn parse(text: &str) -> Self {
        let items = text.split([',', ' ']).map(|item| item.trim().to_ascii_lowercase());
        Self(items.filter(|item| !item.is_empty()).collect())
    }

    pub(super) fn hold(&self, coordinator: &Coordinator) -> bool {
        let host = coordinator.host.to_ascii_lowercase();
        let address = coordinator.literal();
        self.0.iter().any(|item| {
            if let (Some(address), Ok(network)) = (address, item.parse::<ipnet::IpNet>()) {
                return network.contains(&address);
            }
            if let (Some(address), Ok(literal)) = (address, item.parse::<IpAddr>()) {
                return literal == address;
            }
            let item = item.strip_suffix(&format!(":{}", coordinator.port)).unwrap_or(item);
            let item = item.trim_start_matches('.');
            item == "*" || host == item || host.strip_suffix(item).is_some_and(|before| before.ends_with('.'))
        })
    }
}
