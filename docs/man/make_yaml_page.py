"""Write the manual page ingot.yaml(5): its text is ingot.yaml.5.in, its options are those
of etc/ingot.yaml, which is generated from the daemon's own table.

usage: make_yaml_page.py ingot.yaml.5.in ingot.yaml OUTPUT
"""
import re
import sys
import textwrap


def escaped(text):
    """Text without special meaning for the formatter."""
    text = text.replace("\\", "\\e")
    return "\\&" + text if text[:1] in (".", "'") else text


class Page:
    def __init__(self):
        self.lines, self.section = [], None

    def end(self):
        if self.section is not None:
            self.lines.append(".El")
        self.section = None

    def begin(self, section):
        if section != self.section:
            self.end()
            self.lines += [".Ss " + section, ".Bl -tag -width Ds"]
            self.section = section

    def option(self, section, key, help, facts):
        name = key if section == "Without a section" else section + "." + key
        self.begin(section)
        self.lines.append(".It Li " + escaped(name))
        self.text(help)
        self.text(facts)

    def text(self, text):
        """A sentence a line, so that the formatter sets the space between them."""
        for sentence in re.split(r"(?<=[\w)\"]\.) (?=[A-Z0-9\"])", text):
            self.lines += [escaped(line) for line in textwrap.wrap(
                sentence, 78, break_long_words=False, break_on_hyphens=False)]


def options(yaml):
    """(section, key, help, facts) of each option, in the file's order."""
    section, module, comment, models = "", "", [], False
    for number, line in enumerate(yaml.split("\n"), 1):
        if line == "  entries:" and section == "models":
            yield from model_keys(" ".join(comment))
            models = True
            comment = []
            continue
        if models or not line:
            if not line:
                comment = []
            continue
        if found := re.fullmatch(r"([a-z_]+):", line):
            section, module, comment = found[1], "", []
        elif found := re.fullmatch(r"  ([a-z0-9_-]+):", line):
            module, comment = found[1] + ".", []
        elif found := re.fullmatch(r"( *)# (.*)", line):
            comment.append(found[2])
        elif found := re.fullmatch(r"( *)#([a-z_]+): .*", line):
            starts = [i for i, text in enumerate(comment) if text.startswith("Default ")]
            if not starts:
                sys.exit("ingot.yaml:%d: no comment says the default of %s" % (number, found[2]))
            yield (section if found[1] else "Without a section", module + found[2],
                   " ".join(comment[:starts[-1]]), " ".join(comment[starts[-1]:]))
            comment = []
        elif line != "#":
            sys.exit("ingot.yaml:%d: neither a comment nor an option: %s" % (number, line))
    if not models:
        sys.exit("ingot.yaml: there is no models: with entries:")


def model_keys(text):
    """The comment above entries: an introduction, then `key: help` for each."""
    parts = re.split(r"(?:^|(?<=\. ))([a-z_]+): ", text)
    if len(parts) < 3:
        sys.exit("ingot.yaml: the comment above entries: names no key")
    yield ("models.entries", None, parts[0].strip(), "")
    for key, help in zip(parts[1::2], parts[2::2]):
        yield ("models.entries", key, help.strip(), "")


def main():
    template, yaml, output = sys.argv[1:]
    page = Page()
    with open(yaml, encoding="utf-8") as f:
        for section, key, help, facts in options(f.read()):
            if key is None:
                page.end()
                page.lines.append(".Ss " + section)
                page.text(help)
                page.lines.append(".Bl -tag -width Ds")
                page.section = section
            else:
                page.option(section, key, help, facts)
    page.end()
    with open(template, encoding="utf-8") as f:
        text = f.read()
    if text.count("@OPTIONS@\n") != 1:
        sys.exit(template + ": there is not one line @OPTIONS@")
    with open(output, "w", encoding="utf-8") as f:
        f.write(text.replace("@OPTIONS@\n", "\n".join(page.lines) + "\n"))


main()
