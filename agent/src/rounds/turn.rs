//! Letting others begin first.

use std::future::poll_fn;
use std::task::Poll;

/// Ends when every task that can run now had its turn.
///
/// Not [`tokio::task::yield_now`], which lets the runtime look at its sockets first: what has just been begun would then go
/// on (a handshake costs ten times what beginning it does) before what is due at the same moment has begun at all.
pub(super) async fn turn() {
    let mut waited = false;
    poll_fn(|context| {
        if waited {
            return Poll::Ready(());
        }
        waited = true;
        // A task that wakes itself while it runs goes to the end of the runtime's queue.
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::UnixStream;
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn what_is_due_begins_before_what_came_over_a_socket_goes_on() {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let note = |what| {
            let order = Arc::clone(&order);
            move || order.lock().unwrap().push(what)
        };
        let (first, again, due, came) = (note("first"), note("again"), note("due"), note("came"));
        let reads = tokio::spawn(async move {
            theirs.read_u8().await.unwrap();
            came();
        });
        yield_now().await;
        let begins = tokio::spawn(async move {
            first();
            ours.write_u8(1).await.unwrap();
            turn().await;
            again();
        });
        let other = tokio::spawn(async move { due() });
        for task in [reads, begins, other] {
            task.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), ["first", "due", "again", "came"]);
    }
}
