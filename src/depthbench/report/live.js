(() => {
  // a report is one page of a folder; the list of studies is the folder itself
  const base = location.pathname.replace(/report\.html$/, "").replace(/\/?$/, "/");
  const kept = sessionStorage.getItem(base);
  if (kept) {
    JSON.parse(kept).forEach((value, place) => {
      const list = document.querySelectorAll("select")[place];
      if (list && list.value !== value) {
        list.value = value;
        list.dispatchEvent(new Event("change"));
      }
    });
  }
  let version = null;
  async function look() {
    try {
      const answer = await fetch(`${base}version`);
      const now = await answer.text();
      if (version !== null && now !== version) {
        const chosen = [...document.querySelectorAll("select")].map((list) => list.value);
        sessionStorage.setItem(base, JSON.stringify(chosen));
        location.reload();
      }
      version = now;
    } catch {
      // the server has ended: the page stays as it is
    }
  }
  look();
  setInterval(look, 3000);
})();
