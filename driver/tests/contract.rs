//! The contract of every driver, against real servers: the same story on each, then what is special
//! to one vendor. Servers are child processes on 127.0.0.1 in a temporary folder; no root is needed.

#[cfg(test)]
#[path = "contract/rfc2136.rs"]
mod rfc2136;
#[cfg(test)]
#[path = "contract/story.rs"]
mod story;
#[cfg(test)]
mod support;
#[cfg(test)]
#[path = "contract/unbound.rs"]
mod unbound;
