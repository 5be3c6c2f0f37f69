// SPDX-License-Identifier: Apache-2.0
// Repeats a request while the page is visible; waits longer after failures, and longer if
// the request itself takes long.

const MOST_MS = 60000;

// Returns {stop, now}.  `onError` gets the error, or null when it works again.
export function poll(work, interval, onError) {
  let timer = 0, failures = 0, runs = false, again = false, stopped = false;

  async function run() {
    if (stopped)
      return;
    if (runs) {
      again = true;
      return;
    }
    clearTimeout(timer);
    if (document.hidden)
      return; // onVisible() goes on
    runs = true;
    again = false;
    const begin = performance.now();
    try {
      await work();
      if (failures && !stopped)
        onError(null);
      failures = 0;
    } catch (error) {
      if (error.name !== "AbortError" && !stopped) {
        failures++;
        onError(error);
      }
    }
    runs = false;
    if (stopped)
      return;
    const took = performance.now() - begin;
    const wait = Math.min(MOST_MS, Math.max(interval, 10 * took) * 2 ** Math.min(Math.max(failures - 1, 0), 5));
    timer = setTimeout(run, again ? 0 : wait);
  }

  function onVisible() {
    if (!document.hidden)
      run();
  }

  document.addEventListener("visibilitychange", onVisible);
  run();
  return {
    now: run,
    stop() {
      stopped = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", onVisible);
    },
  };
}
