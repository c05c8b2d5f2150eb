//! Asks a node to prove that it lives: its signature over the coordinator's fresh nonce.
//!
//! One TCP connection to the node's responder (`parallax-agent respond`): 8 bytes that say what is asked, the nonce; the
//! signature comes back and nothing else. It is looked at here, so that a wrong key in the configuration is told as such;
//! whether it proves anything the coordinator decides.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use parallax_proto::{LIFE_NAME_BYTES, LIFE_QUESTION, LIFE_SIGNATURE_BYTES, life_message};
use ring::signature::{ED25519, UnparsedPublicKey};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::assignment::Responder;
use crate::measured::{Life, LifeTrouble};
use crate::policy::Role;
use crate::site::Site;

/// Longest wait for the connection and the signature together: the node was reached a moment ago.
const WAIT_MAX: Duration = Duration::from_secs(3);

/// Asks the responder of a node that works from here.
pub async fn ask(site: &Site, address: IpAddr, responder: Responder) -> Life {
    match asked(site, address, responder).await {
        Ok(life) => life,
        Err(trouble) => {
            tracing::debug!(%address, port = responder.port, ?trouble, "no proof of life");
            Life::Missing(trouble)
        }
    }
}

async fn asked(site: &Site, address: IpAddr, responder: Responder) -> Result<Life, LifeTrouble> {
    let to = SocketAddr::new(address, responder.port);
    let permitted = site.policy.permits(address, responder.port, Role::Responder);
    if let Err(denial) = permitted.and_then(|()| site.policy.take_connection(address)) {
        tracing::debug!(%to, %denial, "a node is not asked to prove its life");
        return Err(LifeTrouble::NotAsked);
    }
    // Taken last: each moment counts.
    let nonce = site.life.fresh().ok_or(LifeTrouble::NoNonce)?;
    let exchange = async {
        let stream = site.dialer.tcp(to).await.map_err(|_| LifeTrouble::NotReached)?;
        signed(stream, &nonce.nonce).await.map_err(|_| LifeTrouble::NoAnswer)
    };
    let signature = timeout(WAIT_MAX, exchange).await.map_err(|_| LifeTrouble::NoAnswer)??;
    let public = UnparsedPublicKey::new(&ED25519, responder.public_key);
    public.verify(&life_message(&nonce.nonce), &signature).map_err(|_| LifeTrouble::Mismatch)?;
    Ok(Life::Signed {
        issued_ms: nonce.issued_ms,
        maker: nonce.maker,
        key: responder.public_key.iter().copied().take(LIFE_NAME_BYTES).collect(),
        signature: signature.to_vec(),
    })
}

async fn signed(mut stream: TcpStream, nonce: &[u8]) -> io::Result<[u8; LIFE_SIGNATURE_BYTES]> {
    stream.write_all(&[LIFE_QUESTION.as_slice(), nonce].concat()).await?;
    let mut signature = [0; LIFE_SIGNATURE_BYTES];
    stream.read_exact(&mut signature).await?;
    Ok(signature)
}
