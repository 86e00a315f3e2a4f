/* plot.c: see plot.h.  A picture has no script and no outside reference; colours are dark enough on
 * white, and lines differ by dashes too. */
#include "cli/bench/plot.h"

#include <math.h>

#define WIDTH 720
#define PANEL 220 /* height of a chart with its texts */
#define LEFT 70
#define RIGHT 120
#define TOP 34
#define BOTTOM 40

struct panel {
	const char *title;
	double y, max_x, max_y; /* y: of its upper edge */
};

struct curve {
	const char *name, *colour, *dashes;
	double (*value)(const struct ig_bench_summary *s);
};

/* The smallest of 1, 2, 5 times a power of ten that is at least x. */
static double nice(double x)
{
	double p = x > 0 ? pow(10, floor(log10(x))) : 1;

	return x <= p ? p : x <= 2 * p ? 2 * p : x <= 5 * p ? 5 * p : 10 * p;
}

static double at_x(const struct panel *p, double x)
{
	return LEFT + x / p->max_x * (WIDTH - LEFT - RIGHT);
}

static double at_y(const struct panel *p, double y)
{
	double height = PANEL - TOP - BOTTOM;

	return p->y + TOP + height - (y < p->max_y ? y : p->max_y) / p->max_y * height;
}

static void put_text(struct ig_strbuf *out, double x, double y, const char *anchor,
		     const char *text)
{
	ig_strbuf_printf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
	for (; *text; text++)
		if (*text == '<' || *text == '&' || *text == '>')
			ig_strbuf_printf(out, "&#%d;", *text);
		else
			ig_strbuf_add(out, text, 1);
	ig_strbuf_puts(out, "</text>\n");
}

static void put_line(struct ig_strbuf *out, const struct panel *p, double x0, double y0, double x1,
		     double y1, const char *style)
{
	ig_strbuf_printf(out, "<path d=\"M%.1f %.1fL%.1f %.1f\" %s/>\n", at_x(p, x0), at_y(p, y0),
			 at_x(p, x1), at_y(p, y1), style);
}

static void put_axes(struct ig_strbuf *out, const struct panel *p)
{
	char number[32];

	put_text(out, LEFT, p->y + 20, "start", p->title);
	for (int i = 0; i <= 4; i++) {
		double x = p->max_x * i / 4, y = p->max_y * i / 4;
		put_line(out, p, 0, y, p->max_x, y, "stroke=\"#ddd\"");
		snprintf(number, sizeof number, "%g", y);
		put_text(out, LEFT - 8, at_y(p, y) + 4, "end", number);
		snprintf(number, sizeof number, "%g", x);
		put_text(out, at_x(p, x), p->y + PANEL - BOTTOM + 16, "middle", number);
	}
	put_text(out, (LEFT + WIDTH - RIGHT) / 2.0, p->y + PANEL - BOTTOM + 32, "middle",
		 "offered load, requests a second");
}

static void put_curve(struct ig_strbuf *out, const struct panel *p, const struct curve *c,
		      const struct ig_bench_summary *runs, size_t n, int place)
{
	double label = p->y + TOP + 14 + 16 * place;
	bool begun = false;

	ig_strbuf_puts(out, "<path fill=\"none\" stroke-width=\"2\" d=\"");
	for (size_t i = 0; i < n; i++) {
		double y = c->value(&runs[i]);
		if (!isfinite(y) || !isfinite(runs[i].offered))
			continue;
		ig_strbuf_printf(out, "%c%.1f %.1f", begun ? 'L' : 'M', at_x(p, runs[i].offered),
				 at_y(p, y));
		begun = true;
	}
	ig_strbuf_printf(out, "%s\" stroke=\"%s\" stroke-dasharray=\"%s\"/>\n", begun ? "" : "M0 0",
			 c->colour, c->dashes);
	for (size_t i = 0; i < n; i++) {
		double y = c->value(&runs[i]);
		if (isfinite(y) && isfinite(runs[i].offered))
			ig_strbuf_printf(out,
					 "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n",
					 at_x(p, runs[i].offered), at_y(p, y), c->colour);
	}
	ig_strbuf_printf(out,
			 "<path d=\"M%d %.1fh24\" stroke=\"%s\" stroke-width=\"2\" "
			 "stroke-dasharray=\"%s\"/>\n",
			 WIDTH - RIGHT + 10, label - 4, c->colour, c->dashes);
	put_text(out, WIDTH - RIGHT + 40, label, "start", c->name);
}

static double good(const struct ig_bench_summary *s) { return s->good_per_s; }
static double ok(const struct ig_bench_summary *s) { return s->ok_per_s; }
static double offered(const struct ig_bench_summary *s) { return s->offered; }
static double first_50(const struct ig_bench_summary *s) { return s->first.p50; }
static double first_95(const struct ig_bench_summary *s) { return s->first.p95; }
static double first_99(const struct ig_bench_summary *s) { return s->first.p99; }
static double gap_50(const struct ig_bench_summary *s) { return s->gap.p50; }
static double gap_95(const struct ig_bench_summary *s) { return s->gap.p95; }
static double gap_99(const struct ig_bench_summary *s) { return s->gap.p99; }

bool ig_bench_plot(const struct ig_bench_summary *runs, size_t n, const struct ig_bench_slo *slo,
		   const char *title, struct ig_strbuf *out)
{
	static const struct {
		const char *title;
		struct curve curves[3];
	} charts[] = {
		{ "requests a second",
		  { { "offered", "#999", "2 4", offered },
		    { "answered", "#1b6ca8", "8 4", ok },
		    { "good", "#b3331d", "none", good } } },
		{ "time to first token, ms",
		  { { "p50", "#1b6ca8", "none", first_50 },
		    { "p95", "#6a3d9a", "8 4", first_95 },
		    { "p99", "#b3331d", "2 4", first_99 } } },
		{ "time between tokens, ms",
		  { { "p50", "#1b6ca8", "none", gap_50 },
		    { "p95", "#6a3d9a", "8 4", gap_95 },
		    { "p99", "#b3331d", "2 4", gap_99 } } },
	};
	const double limits[] = { 0, slo->first_ms, slo->token_ms };

	ig_strbuf_printf(out,
			 "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
			 "font-family=\"sans-serif\" font-size=\"12\">\n"
			 "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
			 WIDTH, 30 + 3 * PANEL);
	put_text(out, LEFT, 20, "start", title);
	for (int i = 0; i < 3; i++) {
		struct panel p = { .title = charts[i].title, .y = 30 + i * PANEL };
		for (size_t k = 0; k < n; k++) {
			p.max_x = fmax(p.max_x, isfinite(runs[k].offered) ? runs[k].offered : 0);
			for (int c = 0; c < 3; c++) {
				double y = charts[i].curves[c].value(&runs[k]);
				p.max_y = fmax(p.max_y, isfinite(y) ? y : 0);
			}
		}
		p.max_x = nice(p.max_x);
		p.max_y = nice(p.max_y);
		put_axes(out, &p);
		if (limits[i] > 0 && limits[i] <= p.max_y)
			put_line(out, &p, 0, limits[i], p.max_x, limits[i],
				 "stroke=\"#000\" stroke-dasharray=\"1 3\"");
		for (int c = 0; c < 3; c++)
			put_curve(out, &p, &charts[i].curves[c], runs, n, c);
	}
	ig_strbuf_puts(out, "</svg>\n");
	return ig_strbuf_ok(out);
}
