// Where the figures come from: the stream of events, and `/status` where there is none.

/** Without an event for so long, what is shown is old. */
const PATIENCE_MS = 7000;
/** Between two questions while no stream can be had, and before one is tried again. */
const POLL_MS = 5000;
const STREAM_AGAIN_MS = 30000;

/**
 * Follows the router: `replace` and `update` are called with what it tells, `live` with whether it
 * is heard.
 */
export function follow({ replace, update, live }) {
  let source = null;
  let heard = 0;
  let polling = null;

  const hear = (take) => (event) => {
    heard = Date.now();
    take(JSON.parse(event.data));
    live(true);
  };

  const stop = () => {
    source?.close();
    source = null;
    clearInterval(polling);
    polling = null;
  };

  const poll = async () => {
    try {
      const response = await fetch("status", { cache: "no-store" });
      if (!response.ok) return;
      replace(await response.json());
      heard = Date.now();
      live(true);
    } catch {
      // The watch below says so.
    }
  };

  const start = () => {
    stop();
    source = new EventSource("status/events");
    source.addEventListener("status", hear(replace));
    source.addEventListener("update", hear(update));
    source.addEventListener("error", () => {
      // A connection that broke is made again by the browser; one that was refused is not.
      if (source?.readyState !== EventSource.CLOSED) return;
      stop();
      poll();
      polling = setInterval(poll, POLL_MS);
      setTimeout(() => polling !== null && start(), STREAM_AGAIN_MS);
    });
  };

  setInterval(() => {
    if (!document.hidden && Date.now() - heard > PATIENCE_MS) live(false);
  }, 1000);

  // Nobody looks: the router need not tell anything.
  document.addEventListener("visibilitychange", () => (document.hidden ? stop() : start()));
  if (!document.hidden) start();
}
