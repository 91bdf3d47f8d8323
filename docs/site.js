// A table that is wider than the screen scrolls: the keyboard must reach it.
const focusable = () => {
  for (const one of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) one.tabIndex = 0;
};
focusable();
new MutationObserver(focusable).observe(document.body, { childList: true, subtree: true });
