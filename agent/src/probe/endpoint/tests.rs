use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use super::*;
use crate::dial::Dialer;
use crate::local::Allow;
use crate::netns::{inside, sh};
use crate::policy::Policy;
use crate::probe::live::LiveServers;
use crate::probe::testing::doh::{HOST, Idle, place};
use crate::probe::testing::{Authority, accept, dot, limits};

fn dot_at(server: SocketAddr) -> Resolver {
    Resolver { name: "dot".parse().unwrap(), transport: Transport::Dot { server, server_name: HOST.into() } }
}

fn questions() -> Questions {
    let zone = |text: &str| Some(text.parse().unwrap());
    let known = Question { name: "example.com".parse().unwrap(), family: Family::V4 };
    Questions { known, freshness_zone: zone("fresh.example"), missing_zone: zone("missing.example") }
}

async fn checked(site: &Site, limits: &Limits, resolver: &Resolver) -> (EndpointCheck, EndpointParticulars) {
    let measured = check(site, limits, resolver, &questions()).await;
    assert!(measured.duration <= limits.resolve + Duration::from_millis(500), "{:?}", measured.duration);
    let What::EndpointCheck(fact, kept) = measured.what else { panic!("{measured:?}") };
    (fact, kept)
}

#[tokio::test]
async fn dot_is_asked_three_questions_on_one_connection_and_each_stage_is_timed() {
    let authority = Authority::new();
    let site = place(authority.trust());
    let server = dot::serve_idle(authority.server(HOST), Idle::Stays).await;
    let (fact, kept) = checked(&site, &limits(), &dot_at(server)).await;
    assert_eq!((fact.stage, fact.outcome, fact.fresh), (Stage::Dns, Outcome::Answered, Some(Outcome::Answered)));
    assert!(kept.remark.contains("for a name that does not exist"), "{}", kept.remark);
    let times = [kept.stages.tcp, kept.stages.tls, kept.stages.dns];
    assert!(times.iter().all(|time| !time.is_zero()) && kept.stages.http.is_zero());
    assert!(!fact.worked_before && checked(&site, &limits(), &dot_at(server)).await.0.worked_before);
}

#[tokio::test]
async fn b64_certificates_out_of_their_time_tell_both_times() {
    let authority = Authority::new();
    let site = place(authority.trust());
    for (config, outcome, remark) in [
        (authority.expired_server(HOST), Outcome::CertificateExpired, "the certificate ended 2"),
        (authority.future_server(HOST), Outcome::CertificateNotYetValid, "the certificate begins 2"),
    ] {
        let server = accept(config, |_| async {}).await;
        let (fact, kept) = checked(&site, &limits(), &dot_at(server)).await;
        assert_eq!((fact.stage, fact.outcome, fact.fresh, fact.missing), (Stage::Tls, outcome, None, None));
        assert!(kept.remark.starts_with(remark) && kept.remark.contains("; our clock says 20"), "{}", kept.remark);
        assert!(kept.certificate.is_some());
    }
}

#[tokio::test]
async fn a_hole_for_large_packets_at_an_endpoint_is_told_from_a_dead_process() {
    if !inside(module_path!(), "a_hole_for_large_packets_at_an_endpoint_is_told_from_a_dead_process") {
        return;
    }
    let address = Ipv4Addr::new(104, 26, 4, 10);
    sh(&format!("ip addr add {address}/32 dev lo"));
    let authority = Authority::new();
    // Here it is this machine's own, which nobody may contact without the owner's leave.
    let private = vec![std::net::IpAddr::V4(address).into()];
    let policy = Policy::new(Allow { private, ..Allow::default() });
    let site = Site::new(Dialer::direct(), policy, authority.trust(), LiveServers::new(Vec::new()));
    let listener = TcpListener::bind((address, 853)).await.unwrap();
    let server = listener.local_addr().unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(authority.wordy_server(HOST)));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let _stream = acceptor.accept(stream).await;
                std::future::pending::<()>().await;
            });
        }
    });
    for (rule, outcome) in [
        ("tcp sport 853 meta length > 1300 drop", Outcome::PmtuBlackhole),
        ("tcp sport 853 tcp flags & syn == 0 drop", Outcome::TlsSilent),
    ] {
        sh(&format!(
            "nft 'table inet faults; delete table inet faults; table inet faults {{ chain arriving {{ type filter hook input priority 0; {rule}; }}; }}'"
        ));
        let (fact, _) = checked(&site, &limits(), &dot_at(server)).await;
        assert_eq!((fact.stage, fact.outcome), (Stage::Tls, outcome), "{rule}");
    }
}
