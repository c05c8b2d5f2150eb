//! `/events`: server-sent events that say "look again". They carry no data: a reader that missed
//! some has missed nothing.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::desk::Desk;
use super::trouble::{Form, Trouble};
use crate::hub::News;

/// Pause between two events of one stream: at most two a second.
const PAUSE: Duration = Duration::from_millis(500);

/// Pause when only observations came in: they change numbers, not states.
const PAUSE_OBSERVATIONS: Duration = Duration::from_millis(2000);

/// Silence on a stream after which a comment is sent, so that proxies keep it and dead readers are noticed.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// The stream.
pub async fn events(State(desk): State<Desk>) -> Response {
    let Some(place) = desk.stream() else {
        return std::future::ready(Trouble::Crowded.answer(Form::Text, &desk)).await;
    };
    let (news, shutdown) = (desk.app().hub.news(), desk.shutdown());
    let events = stream::unfold((news, place), move |(mut news, place)| {
        let shutdown = shutdown.clone();
        async move {
            tokio::select! {
                () = shutdown.cancelled() => None,
                came = something(&mut news) => {
                    came.then(|| (Ok::<Event, Infallible>(Event::default().event("changed").data("1")), (news, place)))
                }
            }
        }
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEPALIVE)).into_response()
}

/// Waits for news and lets what follows shortly after pass with it. False: there will be none.
async fn something(news: &mut Receiver<News>) -> bool {
    let mut urgent = match news.recv().await {
        Ok(first) => is_urgent(first),
        Err(RecvError::Lagged(_)) => true,
        Err(RecvError::Closed) => return false,
    };
    tokio::time::sleep(PAUSE).await;
    let patience = tokio::time::sleep(PAUSE_OBSERVATIONS.saturating_sub(PAUSE));
    tokio::pin!(patience);
    while !urgent {
        tokio::select! {
            () = &mut patience => break,
            more = news.recv() => match more {
                Ok(more) => urgent = is_urgent(more),
                Err(RecvError::Lagged(_)) => urgent = true,
                Err(RecvError::Closed) => return false,
            },
        }
    }
    // What came meanwhile is told by this one event.
    *news = news.resubscribe();
    true
}

fn is_urgent(news: News) -> bool {
    match news {
        News::Observations => false,
        News::Vantages | News::Verdicts | News::Incidents | News::Plans => true,
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::broadcast;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_of_news_is_one_event() {
        let (sender, mut news) = broadcast::channel(16);
        for _ in 0..5 {
            sender.send(News::Verdicts).unwrap();
        }
        assert!(something(&mut news).await);
        let next = tokio::time::timeout(Duration::from_secs(60), something(&mut news)).await;
        assert!(next.is_err(), "the burst was told once");
        drop(sender);
        assert!(!something(&mut news).await);
    }

    #[tokio::test(start_paused = true)]
    async fn observations_alone_are_told_later_than_verdicts() {
        for (what, within) in [(News::Verdicts, PAUSE), (News::Observations, PAUSE_OBSERVATIONS)] {
            let (sender, mut news) = broadcast::channel(16);
            sender.send(what).unwrap();
            let waiting = something(&mut news);
            tokio::pin!(waiting);
            let millisecond = Duration::from_millis(1);
            assert!(tokio::time::timeout(within - millisecond, &mut waiting).await.is_err(), "{what:?} too early");
            assert!(tokio::time::timeout(2 * millisecond, &mut waiting).await.unwrap(), "{what:?} too late");
        }
    }
}
