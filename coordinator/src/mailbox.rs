//! A bounded queue for the few messages of one stream. A channel of tokio's takes 800 bytes, for speed between many senders;
//! a coordinator has two queues for each of ten thousand streams, and most are empty all day. This one takes 150 bytes and
//! what waits in it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit, TryAcquireError};
use tokio::time::timeout;

/// A message was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// As many wait as may.
    Full,
    /// Nobody reads any more.
    Closed,
}

/// Puts messages in. Clones put them into the same one.
#[derive(Debug)]
pub struct Sender<T>(Arc<Mailbox<T>>);

/// Takes them out, in order.
#[derive(Debug)]
pub struct Receiver<T>(Arc<Mailbox<T>>);

#[derive(Debug)]
struct Mailbox<T> {
    inside: Mutex<Inside<T>>,
    room: Semaphore,
}

#[derive(Debug)]
struct Inside<T> {
    waiting: VecDeque<T>,
    reader: Option<Waker>,
    senders: usize,
}

/// A queue in which so many messages may wait.
#[must_use]
pub fn mailbox<T>(max: usize) -> (Sender<T>, Receiver<T>) {
    let inside = Mutex::new(Inside { waiting: VecDeque::new(), reader: None, senders: 1 });
    let mailbox = Arc::new(Mailbox { inside, room: Semaphore::new(max) });
    (Sender(Arc::clone(&mailbox)), Receiver(mailbox))
}

impl<T> Mailbox<T> {
    /// Stays consistent even if a holder panicked: each change is one call.
    fn lock(&self) -> MutexGuard<'_, Inside<T>> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, room: SemaphorePermit<'_>, message: T) {
        // Given back by whoever takes the message.
        room.forget();
        let mut inside = self.lock();
        inside.waiting.push_back(message);
        let reader = inside.reader.take();
        drop(inside);
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

impl<T> Sender<T> {
    /// Puts a message in if there is room.
    ///
    /// # Errors
    /// When there is none, or nobody reads.
    pub fn try_send(&self, message: T) -> Result<(), Refused> {
        let room = self.0.room.try_acquire().map_err(|error| match error {
            TryAcquireError::NoPermits => Refused::Full,
            TryAcquireError::Closed => Refused::Closed,
        })?;
        self.0.put(room, message);
        Ok(())
    }

    /// Puts a message in, and waits for room, but not longer than this.
    ///
    /// # Errors
    /// When there was none, or nobody reads.
    pub async fn send_within(&self, message: T, longest: Duration) -> Result<(), Refused> {
        let room = match self.0.room.try_acquire() {
            Ok(room) => room,
            Err(TryAcquireError::Closed) => return Err(Refused::Closed),
            // Boxed: there is room nearly always, and whoever sends has no room for the wait.
            Err(TryAcquireError::NoPermits) => {
                let waiting = Box::pin(timeout(longest, self.0.room.acquire()));
                waiting.await.map_err(|_| Refused::Full)?.map_err(|_| Refused::Closed)?
            }
        };
        self.0.put(room, message);
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.lock().senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut inside = self.0.lock();
        inside.senders -= 1;
        let reader = if inside.senders == 0 { inside.reader.take() } else { None };
        drop(inside);
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

impl<T> Receiver<T> {
    /// The next message; none when nothing waits and nobody can send.
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut inside = self.0.lock();
        if let Some(message) = inside.waiting.pop_front() {
            if inside.waiting.is_empty() {
                // A burst of long ago must not be remembered in memory.
                inside.waiting = VecDeque::new();
            }
            drop(inside);
            self.0.room.add_permits(1);
            return Poll::Ready(Some(message));
        }
        if inside.senders == 0 {
            return Poll::Ready(None);
        }
        inside.reader = Some(context.waker().clone());
        Poll::Pending
    }

    /// The same, to be waited for.
    pub async fn recv(&mut self) -> Option<T> {
        std::future::poll_fn(|context| self.poll_recv(context)).await
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.room.close();
        let waiting = std::mem::take(&mut self.0.lock().waiting);
        drop(waiting);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[tokio::test(start_paused = true)]
    async fn a_message_that_finds_no_room_in_time_is_refused() {
        let (sender, mut receiver) = mailbox(1);
        sender.try_send(1).unwrap();
        assert_eq!(sender.send_within(2, LONG).await, Err(Refused::Full));
        assert_eq!(receiver.recv().await, Some(1));
        assert_eq!(sender.send_within(2, LONG).await, Ok(()));
    }

    #[tokio::test]
    async fn messages_come_in_order_and_one_too_many_waits_for_room() {
        let (sender, mut receiver) = mailbox(2);
        sender.try_send(1).unwrap();
        sender.send_within(2, LONG).await.unwrap();
        assert_eq!(sender.try_send(3), Err(Refused::Full));
        let late = sender.clone();
        let waiting = tokio::spawn(async move { late.send_within(3, LONG).await });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        assert_eq!(receiver.recv().await, Some(1));
        waiting.await.unwrap().unwrap();
        assert_eq!((receiver.recv().await, receiver.recv().await), (Some(2), Some(3)));
        drop(sender);
        assert_eq!(receiver.recv().await, None);
    }

    #[tokio::test]
    async fn a_reader_that_waits_is_woken_by_a_message_and_by_the_end() {
        let (sender, mut receiver) = mailbox(1);
        let reading = tokio::spawn(async move { (receiver.recv().await, receiver.recv().await) });
        tokio::task::yield_now().await;
        sender.try_send("one").unwrap();
        tokio::task::yield_now().await;
        drop(sender);
        assert_eq!(reading.await.unwrap(), (Some("one"), None));
    }

    #[tokio::test]
    async fn nobody_waits_for_room_where_nobody_reads() {
        let (sender, receiver) = mailbox(1);
        sender.try_send(1).unwrap();
        let late = sender.clone();
        let waiting = tokio::spawn(async move { late.send_within(2, LONG).await });
        tokio::task::yield_now().await;
        drop(receiver);
        assert_eq!(waiting.await.unwrap(), Err(Refused::Closed));
        assert_eq!(sender.try_send(3), Err(Refused::Closed));
    }
}
