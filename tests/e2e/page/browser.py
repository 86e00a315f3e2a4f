"""A headless Chromium, driven by selenium: what a person does with the page, and what its checks find."""
import json
import os
import shutil
import time

import daemon as ingot

CHROMIUM = os.environ.get("INGOT_CHROMIUM") or shutil.which("chromium") or ""
DRIVER = os.environ.get("INGOT_CHROMEDRIVER") or shutil.which("chromedriver") or ""
# Accessibility's roles of what a person operates.
OPERATED = {"button", "link", "textbox", "searchbox", "combobox", "checkbox", "radio", "spinbutton", "DisclosureTriangle"}


class Browser:
    def __init__(self, folder):
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
        o = webdriver.ChromeOptions()
        o.binary_location = CHROMIUM
        for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--user-data-dir=%s" % folder):
            o.add_argument(word)
        o.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=o, service=Service(DRIVER))
        self.driver.set_script_timeout(ingot.DEADLINE_S)
        self.base = ""

    def close(self):
        self.driver.quit()

    # ---- going places ----

    def visit(self, d, view="chat", fresh=True):
        """Open the page of a daemon; fresh: without what an earlier page has saved."""
        self.base = "http://127.0.0.1:%d" % d.port
        self.look()
        self.driver.get(self.base + "/#/" + view)
        if fresh:
            self.js("localStorage.clear()")
            self.driver.refresh()
        self.until("document.querySelector('main .view, main .chat, dialog[open]')", "a view")
        return self

    def go(self, view):
        self.js("location.hash = arguments[0]", "#/" + view)
        self.until("document.querySelector('main .%s')" % ("chat" if view == "chat" else "view"), view)

    def look(self, dark=False, width=1280, height=800, mobile=False):
        cdp = self.driver.execute_cdp_cmd
        cdp("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})
        cdp("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile})

    # ---- looking ----

    def js(self, script, *args):
        return self.driver.execute_script(script, *args)

    def ask(self, script, *args):
        """The value of a promise."""
        return self.driver.execute_async_script(
            "const done = arguments[arguments.length - 1]; (async (...args) => {%s})(...arguments)"
            ".then((v) => done([v]), (e) => done([null, String(e)]))" % script, *args)[0]

    def until(self, expression, what):
        try:
            return ingot.until(lambda: self.js("return " + expression), what)
        except AssertionError as e:
            raise AssertionError("%s; the page says:\n%s" % (e, self.text("body")[-1500:])) from None

    def text(self, selector):
        return self.js("return [...document.querySelectorAll(arguments[0])].map((e) => e.innerText).join('\\n')", selector)

    def until_text(self, selector, part):
        self.until("[...document.querySelectorAll(%s)].some((e) => e.textContent.includes(%s))"
                   % (json.dumps(selector), json.dumps(part)), "%s in %s" % (part, selector))

    # ---- doing ----

    def find(self, selector):
        found = self.driver.find_elements("css selector", selector)
        assert len(found) == 1, "%d elements are %s" % (len(found), selector)
        return found[0]

    def click(self, selector):
        from selenium.common.exceptions import StaleElementReferenceException

        def done():
            try:
                self.find(selector).click()
                return True
            except StaleElementReferenceException:  # it was drawn again meanwhile
                return False
        ingot.until(done, "a click on " + selector)

    def click_last(self, selector):
        self.driver.find_elements("css selector", selector)[-1].click()

    def press(self, *keys):
        from selenium.webdriver.common.action_chains import ActionChains
        ActionChains(self.driver).send_keys(*keys).perform()

    def write(self, selector, text):
        box = self.find(selector)
        box.clear()
        box.send_keys(text)

    def say(self, text):
        self.write("#message", text + "\n")

    def replied(self, n=1):
        """Wait until n replies are shown and none is being written."""
        self.until("document.querySelectorAll('.turn.assistant').length >= %d && !document.querySelector('.turn.running')"
                   % n, "%d replies" % n)

    def downloads(self, folder):
        """Files that the page offers are saved in folder."""
        self.driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})

    def downloaded(self, folder, name):
        """The path of such a file, when it is there; its place is taken by an empty one before."""
        ingot.until(lambda: (folder / name).exists() and (folder / name).stat().st_size, name)
        return folder / name

    # ---- judging ----

    def complaints(self):
        """What the console has, but for connections that a test has cut."""
        return [e["message"] for e in self.driver.get_log("browser")
                if "net::ERR_" not in e["message"] and "WebSocket" not in e["message"] and "status of 40" not in e["message"]]

    def network(self):
        """The events of the network since the last call."""
        events = [json.loads(e["message"])["message"] for e in self.driver.get_log("performance")]
        return [e for e in events if e["method"].startswith("Network.")]

    def sent(self):
        """What was sent on WebSockets since the last call."""
        return [json.loads(e["params"]["response"]["payloadData"]) for e in self.network()
                if e["method"] == "Network.webSocketFrameSent" and e["params"]["response"]["opcode"] == 1]

    def unnamed(self):
        """What a person operates and a screen reader has no name for."""
        nodes = self.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        out = []
        for n in nodes:
            role = n.get("role", {}).get("value")
            if not n.get("ignored") and (role in OPERATED or role == "image") and not n.get("name", {}).get("value", "").strip():
                out.append((role, n.get("backendDOMNodeId")))
        return out

    def problems(self):
        """What a view gets wrong: doubled ids, targets that are not there, tab orders, text that can't be
        read on its ground, content beside the window."""
        return self.js(CHECKS)

    def tab_order(self, limit=80):
        """The elements that the Tab key reaches, in its order."""
        from selenium.webdriver.common.keys import Keys
        self.js("document.querySelector('.skip').focus()")
        out = []
        for _ in range(limit):
            self.press(Keys.TAB)
            place = self.js("const e = document.activeElement; if (e === document.body) return null;"
                            "return [...document.querySelectorAll('*')].indexOf(e)")
            if place is None or place in out:
                break
            out.append(place)
        return out


CHECKS = r"""
const out = [];
const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
for (const id of ids.filter((x, i) => ids.indexOf(x) !== i)) out.push('id twice: ' + id);
for (const name of ['for', 'aria-controls', 'aria-labelledby', 'aria-describedby'])
  for (const e of document.querySelectorAll('[' + name + ']'))
    for (const id of e.getAttribute(name).split(/\s+/))
      if (!document.getElementById(id)) out.push(name + ' of nothing: ' + id);
for (const e of document.querySelectorAll('[tabindex]')) if (e.tabIndex > 0) out.push('tabindex ' + e.tabIndex);
if (document.documentElement.scrollWidth > innerWidth) out.push('wider than the window: ' + document.documentElement.scrollWidth);
if (document.querySelectorAll('main').length !== 1) out.push('not one main');
const levels = [...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].filter((e) => e.checkVisibility());
if (levels.filter((e) => e.tagName === 'H1').length > 1) out.push('two h1');
const numbers = (c) => (c.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number);
const over = (top, below) => {
  const a = top[3] === undefined ? 1 : top[3];
  return [0, 1, 2].map((i) => top[i] * a + below[i] * (1 - a));
};
const ground = (e) => {
  if (!e) return numbers(getComputedStyle(document.body).backgroundColor);
  const own = numbers(getComputedStyle(e).backgroundColor);
  return own[3] === 0 ? ground(e.parentElement) : own[3] === undefined || own[3] === 1 ? own : over(own, ground(e.parentElement));
};
const light = (c) => {
  const [r, g, b] = c.map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let n = walker.nextNode(); n; n = walker.nextNode()) {
  const e = n.parentElement;
  if (!n.data.trim() || !e.checkVisibility({ opacityProperty: true }) || e.closest('.away, .skip, option, :disabled')) continue;
  const style = getComputedStyle(e);
  const svg = e instanceof SVGElement;
  const color = numbers(svg ? style.fill : style.color);
  const back = ground(svg ? e.ownerSVGElement.parentElement : e);
  const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.6 && style.fontWeight >= 700);
  const r = ratio(over(color, back), back);
  if (r < (large ? 3 : 4.5)) out.push('contrast ' + r.toFixed(2) + ': ' + n.data.trim().slice(0, 40));
}
return out;
"""
