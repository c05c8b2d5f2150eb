//! The configuration file as it is written: every key known, nothing yet checked against anything
//! else. [`super::check`] turns it into a [`super::Config`].

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use parallax_decide::topology::Mode;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_saphyr::Spanned;

use super::identity::IdentityFile;
use super::policy::Overrides;
use super::retain::DatabaseFile;

/// `parallax.yaml`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Version of the format: 1.
    #[schemars(with = "u32")]
    pub version: Spanned<u32>,
    /// Where to listen.
    #[serde(default)]
    pub listen: ListenFile,
    /// Who vouches for agents and for the coordinator, and where agents reach it.
    #[serde(default)]
    pub identity: IdentityFile,
    /// What is kept in the database, and how long.
    #[serde(default)]
    pub database: DatabaseFile,
    /// Set of defaults for how careful to be.
    #[serde(default)]
    pub policy: PolicyName,
    /// Single settings of the policy and of the schedule.
    #[serde(default)]
    #[schemars(with = "Option<Overrides>")]
    pub policy_overrides: Option<Spanned<Overrides>>,
    /// Places that measure.
    #[schemars(with = "Vec<VantageFile>")]
    pub vantages: Spanned<Vec<VantageFile>>,
    /// Resolvers under test.
    #[schemars(with = "Vec<ResolverFile>")]
    pub resolvers: Spanned<Vec<ResolverFile>>,
    /// Watched names.
    #[serde(default)]
    #[schemars(with = "Option<Vec<CanaryFile>>")]
    pub canaries: Option<Spanned<Vec<CanaryFile>>>,
    /// Addresses that stand for a block page: a hint, which yields to proof.
    #[serde(default)]
    #[schemars(with = "Option<Vec<String>>")]
    pub stubs: Option<Spanned<Vec<IpAddr>>>,
    /// Controls.
    #[schemars(with = "Vec<ControlFile>")]
    pub controls: Spanned<Vec<ControlFile>>,
    /// What endpoint checks ask.
    #[serde(default)]
    pub questions: QuestionsFile,
    /// Machines of ours.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, NodeFile>")]
    pub nodes: BTreeMap<String, Spanned<NodeFile>>,
    /// Services of ours.
    #[serde(default)]
    #[schemars(with = "Option<Vec<ServiceFile>>")]
    pub services: Option<Spanned<Vec<ServiceFile>>>,
    /// Drivers the coordinator uses.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, DriverFile>")]
    pub drivers: BTreeMap<String, Spanned<DriverFile>>,
}

/// `listen:`
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListenFile {
    /// `127.0.0.1:8080` or `unix:/path`.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub web: Option<Spanned<String>>,
    /// `127.0.0.1:8443`.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub grpc: Option<Spanned<SocketAddr>>,
}

/// `policy:`
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PolicyName {
    /// The computed defaults.
    #[default]
    Default,
    /// Rounds of 5 s, for a demonstration or a laboratory.
    Fast,
}

/// One of `vantages:`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VantageFile {
    /// Name; also the name its certificate is issued for.
    #[schemars(with = "String")]
    pub name: Spanned<String>,
    /// Words that describe it.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Uplink it shares with others; its own name when absent.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub failure_domain: Option<Spanned<String>>,
    /// Resolver that its live resolver forwards to.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub upstream: Option<Spanned<String>>,
    /// How names can be pinned there.
    #[serde(default)]
    pub pin: Option<PinFile>,
    /// Who switches its resolver to another endpoint; absent: nobody, and names are pinned instead.
    #[serde(default)]
    pub switch: Option<SwitchName>,
    /// Whether it stands for the users of the services.
    #[serde(default = "yes")]
    pub audience: bool,
    /// Where its probes come from.
    #[serde(default)]
    #[schemars(with = "Option<SourceFile>")]
    pub source: Option<Spanned<SourceFile>>,
}

/// `switch:` of a vantage
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SwitchName {
    /// A person. A switch that would heal is offered, and nothing is pinned then.
    ByHand,
}

/// `source:` of a vantage
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceFile {
    /// Own addresses, at most one of each family.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub addresses: Vec<IpAddr>,
    /// Network interface.
    #[serde(default)]
    pub interface: Option<String>,
}

/// `pin:` of a vantage
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PinFile {
    /// Driver of the agent's own local file.
    #[schemars(with = "String")]
    pub driver: Spanned<String>,
    /// What it may do by itself.
    #[serde(default)]
    #[schemars(schema_with = "mode")]
    pub mode: Mode,
}

/// One of `resolvers:`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResolverFile {
    /// Name.
    #[schemars(with = "String")]
    pub name: Spanned<String>,
    /// How it is spoken to.
    pub kind: ResolverKind,
    /// What it may be used for.
    pub role: RoleName,
    /// Whether it validates signatures (DNSSEC). One that does not is never offered as a way out.
    #[serde(default = "yes")]
    pub validates: bool,
    /// Whether it is meant to filter: a filtered canary is then a fault of the configuration.
    #[serde(default)]
    pub filtering_wanted: bool,
    /// Order among the reserves.
    #[serde(default)]
    #[schemars(with = "Option<u8>")]
    pub order: Option<Spanned<u8>>,
    /// URL (doh).
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub url: Option<Spanned<String>>,
    /// Addresses to connect to (doh).
    #[serde(default)]
    #[schemars(with = "Option<Vec<String>>")]
    pub bootstrap: Option<Spanned<Vec<IpAddr>>>,
    /// Plain DNS servers that know the URL's host, where no address is pinned (doh).
    #[serde(default)]
    #[schemars(with = "Option<Vec<String>>")]
    pub bootstrap_resolvers: Option<Spanned<Vec<Spanned<String>>>>,
    /// Form of the question (doh).
    #[serde(default)]
    #[schemars(with = "Option<DohFormatName>")]
    pub format: Option<Spanned<DohFormatName>>,
    /// How the question is sent (doh).
    #[serde(default)]
    #[schemars(with = "Option<DohMethodName>")]
    pub method: Option<Spanned<DohMethodName>>,
    /// Version of HTTP (doh).
    #[serde(default)]
    #[schemars(schema_with = "http_version")]
    pub http: Option<Spanned<HttpVersionName>>,
    /// Address and port (udp, tcp, dot).
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub address: Option<Spanned<String>>,
    /// Name of the certificate (dot).
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub server_name: Option<Spanned<String>>,
}

/// `kind:` of a resolver
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResolverKind {
    /// What clients at the vantage use.
    System,
    /// Plain DNS over UDP, then TCP when truncated.
    Udp,
    /// Plain DNS over TCP alone.
    Tcp,
    /// DNS over HTTPS.
    Doh,
    /// DNS over TLS.
    Dot,
}

/// `format:` of a DoH resolver
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DohFormatName {
    /// RFC 8484.
    Wire,
    /// `?name=&type=`, as the large public resolvers have it.
    Json,
}

/// `method:` of a DoH resolver
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DohMethodName {
    /// POST: kept by no cache on the way.
    Post,
    /// GET.
    Get,
}

/// `http:` of a DoH resolver
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum HttpVersionName {
    /// HTTP/2, and HTTP/1.1 where the server does not offer it.
    #[serde(rename = "auto")]
    Auto,
    /// HTTP/1.1.
    #[serde(rename = "1.1")]
    Http1,
    /// HTTP/2.
    #[serde(rename = "2")]
    Http2,
}

/// `role:` of a resolver
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RoleName {
    /// The live resolver.
    Live,
    /// In use as upstream.
    Primary,
    /// May be switched to.
    Reserve,
    /// Compared only.
    ObserveOnly,
}

/// One of `canaries:`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CanaryFile {
    /// Host name.
    #[schemars(with = "String")]
    pub name: Spanned<String>,
    /// TCP port.
    #[serde(default = "https")]
    pub port: u16,
    /// Whether TLS for the name is the proof.
    #[serde(default = "yes")]
    pub tls: bool,
    /// Request after TLS.
    #[serde(default)]
    #[schemars(with = "Option<HttpFile>")]
    pub http: Option<Spanned<HttpFile>>,
    /// Whether agents validate the answer themselves (DNSSEC).
    #[serde(default)]
    pub validate: bool,
}

/// `http:` of a canary or a node
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpFile {
    /// Path and query.
    pub path: String,
    /// Statuses that are right; absent: any from 200 to 399.
    #[serde(default)]
    pub statuses: Vec<u16>,
    /// Read at least this much of the body.
    #[serde(default)]
    pub read_bytes: u32,
}

/// `questions:`
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QuestionsFile {
    /// A name that exists.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub known: Option<Spanned<String>>,
    /// Unsigned wildcard zone of the operator's.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub freshness_zone: Option<Spanned<String>>,
    /// Random labels below it do not exist.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub missing_zone: Option<Spanned<String>>,
}

/// One of `controls:`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ControlFile {
    /// Name.
    #[schemars(with = "String")]
    pub name: Spanned<String>,
    /// Address; with a captive URL it may be absent.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub address: Option<Spanned<IpAddr>>,
    /// TCP port; with a captive URL the URL has it.
    #[serde(default)]
    pub port: Option<u16>,
    /// Name of the certificate; absent: TCP is enough.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub server_name: Option<Spanned<String>>,
    /// Must stay silent.
    #[serde(default)]
    pub negative: bool,
    /// Plain HTTP URL that must give status 204.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub captive_url: Option<Spanned<String>>,
}

/// One of `nodes:`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeFile {
    /// Address.
    #[schemars(with = "String")]
    pub address: Spanned<IpAddr>,
    /// TCP port.
    #[serde(default = "https")]
    pub port: u16,
    /// Name of the certificate; absent: TCP is enough.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub server_name: Option<Spanned<String>>,
    /// Request after TLS.
    #[serde(default)]
    #[schemars(with = "Option<HttpFile>")]
    pub http: Option<Spanned<HttpFile>>,
    /// How it proves its life; absent: it does not.
    #[serde(default)]
    pub proof: Option<ProofFile>,
}

/// `proof:` of a node
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProofFile {
    /// Public key of its responder, 64 hexadecimal digits: `parallax-agent respond --public`.
    #[schemars(with = "String")]
    pub key: Spanned<String>,
    /// TCP port of its responder; absent: 7443.
    #[serde(default)]
    pub port: Option<u16>,
}

/// One of `services:`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceFile {
    /// Name.
    #[schemars(with = "String")]
    pub name: Spanned<String>,
    /// Its A record's name.
    #[schemars(with = "String")]
    pub hostname: Spanned<String>,
    /// TTL of the record, seconds.
    #[schemars(with = "u32")]
    pub ttl_s: Spanned<u32>,
    /// Node that serves it when all is well.
    #[schemars(with = "String")]
    pub native: Spanned<String>,
    /// Nodes that can stand in, in order.
    #[schemars(with = "Vec<String>")]
    pub fallbacks: Spanned<Vec<Spanned<String>>>,
    /// Driver that changes the record.
    #[schemars(with = "String")]
    pub driver: Spanned<String>,
    /// What may be done without a person.
    #[serde(default)]
    #[schemars(schema_with = "mode")]
    pub mode: Mode,
    /// Whether that holds too when only the audience has lost the node; else a person is asked.
    #[serde(default)]
    pub audience_failover: bool,
}

/// One of `drivers:`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DriverFile {
    /// Which vendor.
    pub kind: DriverKind,
    /// The most it may do by itself.
    #[serde(default = "act")]
    #[schemars(schema_with = "mode")]
    pub mode: Mode,
    /// Primary server of the zone.
    #[schemars(with = "String")]
    pub server: SocketAddr,
    /// Zone.
    #[schemars(with = "String")]
    pub zone: Spanned<String>,
    /// Name of the TSIG key.
    #[schemars(with = "String")]
    pub tsig_name: Spanned<String>,
    /// Algorithm of the TSIG key.
    #[serde(default)]
    pub tsig_algorithm: TsigAlgorithmName,
    /// File with the key's secret in base64.
    #[serde(default)]
    pub tsig_secret_file: Option<PathBuf>,
    /// Variable of the environment with the key's secret, instead of the file.
    #[serde(default)]
    pub tsig_secret_env: Option<String>,
}

/// `kind:` of a driver
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DriverKind {
    /// RFC 2136 with TSIG.
    Rfc2136,
}

/// `tsig_algorithm:` of a driver
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TsigAlgorithmName {
    /// HMAC with SHA-256.
    #[default]
    HmacSha256,
    /// HMAC with SHA-384.
    HmacSha384,
    /// HMAC with SHA-512.
    HmacSha512,
}

/// `mode:`, whose words live where judging does.
fn mode(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["observe", "propose", "act"] })
}

/// `http:` of a resolver: YAML takes 1.1 and 2 for numbers, which are read all the same.
fn http_version(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "enum": ["auto", "1.1", "2", 1.1, 2, null] })
}

fn https() -> u16 {
    443
}

fn yes() -> bool {
    true
}

fn act() -> Mode {
    Mode::Act
}
