// Color mode and keyboard shortcuts of every page; contains no data of runs.
(() => {
  const root = document.documentElement;
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const modes = ["system", "light", "dark"];
  let mode = "system";
  try {
    mode = modes.includes(localStorage.getItem("syncline-theme")) ? localStorage.getItem("syncline-theme") : "system";
  } catch {} // storage is disabled

  // The redirect from the URL with the token sets the fragment: the key for actions, stored for this port of this host only.
  const given = /^#key=([0-9a-f]{64})$/.exec(location.hash);
  let key = given?.[1];
  if (key) history.replaceState(null, "", location.pathname + location.search);
  try {
    if (key) localStorage.setItem("syncline-key", key);
    key ??= localStorage.getItem("syncline-key");
  } catch {}
  window.slKey = () => key ?? "";

  const isDark = () => (mode === "system" ? system.matches : mode === "dark");
  function apply() {
    root.dataset.theme = isDark() ? "dark" : "light";
    root.dataset.mode = mode;
    if (typeof setDark === "function" && document.body) setDark(mode === "system" ? null : mode === "dark");
  }
  apply();
  system.addEventListener("change", () => (apply(), announce()));
  window.addEventListener("load", apply);

  function announce() {
    if (window.did_handshake) emitEvent("sl-theme");
  }
  window.slNextTheme = () => {
    mode = modes[(modes.indexOf(mode) + 1) % modes.length];
    try {
      localStorage.setItem("syncline-theme", mode);
    } catch {}
    apply();
    announce();
  };
  window.slColor = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  // Table cells are recreated when their rows change: give the focus back to the element with the same key.
  let focused = null; // { element, key, table }
  const keyed = (element) => element?.closest?.("[data-sl-key]");
  document.addEventListener("focusin", (event) => {
    const element = keyed(event.target);
    focused = element && { element, key: element.dataset.slKey, table: element.closest(".sl-table")?.id };
  });
  document.addEventListener("focusout", () =>
    setTimeout(() => {
      if (focused?.element.isConnected && document.activeElement !== focused.element) focused = null;
    }),
  );
  new MutationObserver(() => {
    if (!focused || focused.element.isConnected || document.activeElement !== document.body) return;
    const table = document.getElementById(focused.table);
    const again = [...(table?.querySelectorAll("[data-sl-key]") ?? [])].find((each) => each.dataset.slKey === focused.key);
    again?.focus({ preventScroll: true });
  }).observe(root, { childList: true, subtree: true });

  const typing = (element) => element?.closest("input:not([readonly]), textarea, select, [contenteditable]");
  const rowLinks = () => [...document.querySelectorAll("[data-sl-rows] tbody a.sl-link")];
  const onKey = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const filter = document.querySelector("[data-sl-filter]");
    const field = filter?.matches("input") ? filter : filter?.querySelector("input");
    if (event.key === "/" && field && !typing(event.target)) {
      event.preventDefault();
      event.stopPropagation();
      field.focus();
      field.select();
      return;
    }
    const down = event.key === "ArrowDown" || (event.key === "j" && !typing(event.target));
    const up = event.key === "ArrowUp" || (event.key === "k" && !typing(event.target));
    if (!down && !up) return;
    const links = rowLinks();
    const at = links.indexOf(document.activeElement);
    const inFilter = field && event.target === field;
    if (at < 0 && !inFilter) return;
    event.preventDefault();
    if (up && at <= 0) field?.focus();
    else links[Math.min(at + (down ? 1 : -1), links.length - 1)]?.focus();
  };
  document.addEventListener("keydown", onKey, true); // capture before the framework's menus, which stop the propagation
})();
