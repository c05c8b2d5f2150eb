//! An address to try for a target of the assignment, as a fact.

use std::net::IpAddr;

use parallax_decide::observation::{Connection, Says, Target};

use super::Limits;
use super::connection::{Attempted, probe};
use super::life;
use crate::assignment::{Canary, HttpCheck, Node, Responder};
use crate::measured::{Measured, What};
use crate::policy::Role;
use crate::site::Site;

/// An address to try for a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    /// What it is tried for.
    pub target: Target,
    /// The address.
    pub address: IpAddr,
    /// TCP port.
    pub port: u16,
    /// TLS server name; `None`: stop after TCP.
    pub server_name: Option<String>,
    /// What to ask after TLS.
    pub http: Option<HttpCheck>,
    /// What is asked for its life when it works.
    pub life: Option<Responder>,
}

impl Tried {
    /// An address that was given for a canary.
    #[must_use]
    pub fn canary(canary: &Canary, address: IpAddr) -> Self {
        let server_name = canary.tls.then(|| canary.name.to_string());
        let http = canary.http.clone();
        Self { target: Target::Name(canary.name.clone()), address, port: canary.port, server_name, http, life: None }
    }

    /// A node's own address.
    #[must_use]
    pub fn node(node: &Node) -> Self {
        Self {
            target: Target::Node(node.name.clone()),
            address: node.address,
            port: node.port,
            server_name: node.server_name.clone(),
            http: node.http.clone(),
            life: node.life,
        }
    }

    /// Tries it.
    pub async fn measure(&self, site: &Site, limits: &Limits) -> Measured {
        let attempted = Attempted {
            address: self.address,
            port: self.port,
            server_name: self.server_name.as_deref(),
            http: self.http.as_ref(),
            role: Role::Target,
        };
        let mut reached = probe(site, limits, &attempted).await;
        if let Target::Name(name) = &self.target
            && reached.outcome.says() == Says::Works
        {
            site.proofs.note(name, self.address);
        }
        if let Some(responder) = self.life
            && reached.outcome.says() == Says::Works
        {
            // Boxed: few targets have one, and every other probe would carry its size.
            reached.kept.life = Some(Box::new(Box::pin(life::ask(site, self.address, responder)).await));
        }
        let fact = Connection {
            target: self.target.clone(),
            address: self.address,
            port: self.port,
            outcome: reached.outcome,
            attempts: reached.attempts,
            attempts_connected: reached.attempts_connected,
        };
        Measured { what: What::Connection(fact, reached.kept), duration: reached.duration }
    }
}
