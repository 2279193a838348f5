"""Chromium without a screen: opens pages of the console, uses them by what a person sees, and keeps pictures.

What goes wrong in the page is an error of the test: anything in its log, and any request that leaves the broker.
"""

import json
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from tests.support.waiting import wait_until

WIDE: Final = (1280, 860)
NARROW: Final = (360, 780)
FLAGS: Final = (
    "--headless=new",
    "--no-sandbox",  # tests may run as root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
)
HIGHEST: Final = 2400


class Browser:
    def __init__(self, pictures: Path) -> None:
        self._pictures = pictures
        self._driver: Chrome
        self._origins: set[str] = set()
        self._sent: list[tuple[str, str]] = []
        self.allowed: tuple[str, ...] = ()
        """What the page's log may hold in this test, such as an answer that is refused on purpose."""

    def __enter__(self) -> Self:
        options = Options()
        for flag in FLAGS:
            options.add_argument(flag)
        options.accept_insecure_certs = True  # of authorities that tests make
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self._driver = Chrome(options=options, service=Service("/usr/bin/chromedriver"))
        return self

    def __exit__(self, *_: object) -> None:
        self._driver.quit()

    def begin(self) -> None:
        self.allowed = ()
        self.look("light", WIDE)
        if self._origins:
            self._driver.execute_script("sessionStorage.clear(); localStorage.clear()")
        self._driver.get("about:blank")
        self._origins = set()
        self._driver.get_log("browser")
        self._driver.get_log("performance")
        self._sent = []

    def look(self, theme: str, size: tuple[int, int]) -> None:
        self._command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        self._resize(*size)
        self._size = size

    def open(self, url: str, place: str = "/") -> None:
        """Opens a page of the console and waits until it is there."""
        self._origins.add(url)
        self._driver.get("about:blank")
        self._driver.get(f"{url}/console#{place}")
        wait_until(lambda: self.all("h1, main .notice"), f"{place} is shown", 30)

    def go(self, url: str) -> None:
        self._origins.add("{0.scheme}://{0.netloc}".format(urlsplit(url)))
        self._driver.get(url)

    @property
    def address(self) -> str:
        return self._driver.current_url

    @property
    def title(self) -> str:
        return self._driver.title

    # What is on the page

    def all(self, selector: str) -> list[WebElement]:
        return self._driver.find_elements(By.CSS_SELECTOR, selector)

    @property
    def text(self) -> str:
        return str(self._driver.execute_script("return document.body.innerText"))

    def wait_for(self, text: str, deadline_s: float = 30) -> None:
        wait_until(lambda: text in self.text, f"{text!r} in {self.address}", deadline_s)

    def button(self, text: str, within: str = "body") -> WebElement:
        """The button or link with this text or name; the last one, which is the one in the open dialog."""
        found = f".//*[self::button or self::a or self::summary][normalize-space(.)='{text}' or @aria-label='{text}']"
        element: WebElement | None = None

        def there() -> bool:
            nonlocal element
            shown = [each for each in self.all(within)[-1].find_elements(By.XPATH, found) if each.is_displayed()]
            element = shown[-1] if shown else None
            return element is not None

        wait_until(there, f"a button {text!r} in {self.address}", 20)
        assert element is not None
        return element

    def press(self, text: str, within: str = "body") -> None:
        def pressed() -> bool:
            element = self.button(text, within)
            try:
                self._driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
                element.click()
            except StaleElementReferenceException:
                return False  # the page has just drawn itself anew
            return True

        wait_until(pressed, f"{text!r} is pressed", 20)

    def field(self, name: str) -> WebElement:
        """The input, list or text area that is labelled so; in a dialog if one is open."""
        scope = "//dialog[@open]" if self.all("dialog[open]") else "//body"
        label = f"label[normalize-space(span)='{name}' or normalize-space(.)='{name}']"
        inside = "*[self::input or self::select or self::textarea]"
        found = self._driver.find_elements(
            By.XPATH, f"{scope}//{label}//{inside} | {scope}//{inside}[@aria-label='{name}']"
        )
        assert found, f"no field {name!r} in {self.address}"
        return found[0]

    def type(self, name: str, text: str) -> None:
        field = self.field(name)
        field.clear()
        field.send_keys(text)

    def choose(self, name: str, option: str) -> None:
        field = self.field(name)
        [wanted] = [each for each in field.find_elements(By.TAG_NAME, "option") if each.text == option]
        wanted.click()

    def confirm(self, action: str, *, name: str | None = None, command: str | None = None) -> None:
        """Ends the open dialog with its action: types the name it asks for, and looks at the command it shows."""
        if command is not None:
            self.press("The same as a command", "dialog[open]")
            self.wait_for(command)
        if name is not None:
            assert not self.button(action, "dialog[open]").is_enabled(), "it is done without a name"
            self.type(f"Type {name} to confirm", name)
        self.press(action, "dialog[open]")

    def run(self, script: str, *arguments: Any) -> Any:
        return self._driver.execute_script(script, *arguments)

    def run_later(self, script: str, *arguments: Any) -> Any:
        """Runs a script that calls its last argument when it is done."""
        self._driver.set_script_timeout(60)
        return self._driver.execute_async_script(script, *arguments)

    def heap_bytes(self) -> int:
        """What the page's script holds, after what it dropped is collected."""
        self._command("HeapProfiler.collectGarbage")
        return int(self._driver.execute_cdp_cmd("Runtime.getHeapUsage", {})["usedSize"])

    # What is kept

    def picture(self, name: str, *, whole: bool = True) -> Path:
        width, height = self._size
        self.settle()
        if whole:
            page = int(self.run("return document.documentElement.scrollHeight"))
            self._resize(width, min(HIGHEST, max(height, page)))
        path = self._pictures / f"{name}.png"
        assert self._driver.save_screenshot(str(path))
        self._resize(width, height)
        return path

    def settle(self) -> None:
        """Ends what fades in: until then colours are pale."""
        self.run(
            "document.getAnimations().forEach((each) => each.effect.getTiming().iterations === 1 && each.finish())"
        )

    def overflow(self) -> int:
        """How many pixels the page is wider than the window."""
        return int(self.run("return document.documentElement.scrollWidth - innerWidth"))

    def check_quiet(self) -> None:
        said = [each["message"] for each in self._driver.get_log("browser") if each["level"] != "INFO"]
        said = [each for each in said if not any(text in each for text in self.allowed)]
        assert said == [], f"the page's log: {said}"
        strangers = {
            url for _, url in self.requests() if not url.startswith((*self._origins, "data:", "blob:", "about:"))
        }
        assert strangers == set(), f"requests to others than {self._origins}: {strangers}"

    def requests(self) -> list[tuple[str, str]]:
        """Method and address of each request since the test began."""
        events = (json.loads(each["message"])["message"] for each in self._driver.get_log("performance"))
        asked = [each["params"]["request"] for each in events if each["method"] == "Network.requestWillBeSent"]
        self._sent += [(each["method"], each["url"]) for each in asked if self._origins]
        return self._sent

    def _resize(self, width: int, height: int) -> None:
        self._command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    def _command(self, name: str, **parameters: Any) -> None:
        self._driver.execute_cdp_cmd(name, parameters)
