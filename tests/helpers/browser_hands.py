"""What a user does with a page, and what a user sees of it."""


def press(opened, *keys):
    for key in keys:
        opened.page.keyboard.press(key)


def choose(opened, label, value):
    opened.page.get_by_label(label, exact=True).locator("visible=true").first.select_option(value)


def narrow_to(opened, facet, choice):
    opened.page.locator(f'[data-key="{facet} {choice}"]').click()


def counts(opened, facet):
    """The choices of a facet with the number of questions that each would leave."""
    shown = opened.page.locator(f'.facets[aria-label="{facet}"] .facet').all_inner_texts()
    return {name.strip(): int(count) for name, _, count in (text.replace("\n", " ").strip().rpartition(" ") for text in shown)}


def contrasts(opened):
    """The contrast of each text that is shown with the nearest paper behind it; WCAG 2 AA asks for 4.5."""
    return opened.page.evaluate(CONTRASTS)


# The contrast of each text with the nearest paper behind it (WCAG 2.2, 1.4.3); doubtful tokens are shaded by degrees and left out.
CONTRASTS = """() => {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const rgba = (colour) => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const linear = (value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
    const luminance = (colour) => {
        const [r, g, b] = rgba(colour).map(linear);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const paper = (node) => {
        const colour = getComputedStyle(node).backgroundColor;
        return rgba(colour)[3] === 255 ? colour : paper(node.parentElement);
    };
    const hasText = (node) => [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    const shown = [...document.querySelectorAll("body *")].filter((node) => node.checkVisibility() && hasText(node));
    return shown.filter((node) => !node.matches(".token, :disabled, script, noscript")).map((node) => {
        const [a, b] = [luminance(getComputedStyle(node).color), luminance(paper(node))];
        return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    });
}"""
