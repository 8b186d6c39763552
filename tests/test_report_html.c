#include <criterion/criterion.h>
#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../verify/html_pictures.h"
#include "../verify/report.h"
#include "../verify/report_bench.h"
#include "../verify/report_sweep.h"
#include "../verify/wire.h"

/* ---- a measure made by hand: 2 tokens of 2 heads, out 1 with bound 2^-8 and A 4 ----------------------------------------------------- */

#define HEADS 2
#define ROWS 4
#define ELEMENTS (ROWS * MLA_HEAD_DIM_V)

static const int32_t qo_indptr[2] = {0, 2};
static int32_t q_len[1] = {2}, kv_len[1] = {7};
static mla_case test = {.heads = HEADS, .batch = 1, .q_len = q_len, .kv_len = kv_len, .out = MLA_BF16};
static mla_problem problem = {.batch = 1, .heads = HEADS, .total_q = 2, .qo_indptr = qo_indptr, .out_format = MLA_BF16};
static uint16_t out[ELEMENTS];
static double exact[ELEMENTS], magnitude[ELEMENTS], bound[ELEMENTS], lse_exact[ROWS], lse_bound[ROWS];
static uint8_t kind[ROWS];
static mla_measure measure;

/* Row 1, column 40: one ulp (2^-7) off, twice its bound. Row 2, column 511: never written. Row 3, column 0: A = 0. */
static void setup(void) {
    for (int i = 0; i < ELEMENTS; i++) {
        out[i] = 0x3F80;
        exact[i] = 1;
        magnitude[i] = 4;
        bound[i] = 0x1p-8;
    }
    out[512 + 40] = 0x3F81;
    memset(&out[2 * 512 + 511], 0xFF, 2);
    exact[3 * 512] = magnitude[3 * 512] = 0;
    out[3 * 512] = 0;
    const mla_truth truth = {
        .tokens = 2, .rows = ROWS, .out = exact, .abs = magnitude, .bound = bound, .lse = lse_exact, .lse_bound = lse_bound, .kind = kind};
    cr_assert_eq(mla_measure_init(&measure, &problem).code, MLA_OK);
    cr_assert_eq(mla_measure_add_pictures(&measure, &problem).code, MLA_OK);
    mla_compare(&problem, &truth, &(mla_output){.out = out}, &measure);
}

static void teardown(void) {
    mla_measure_free(&measure);
}

TestSuite(pictures, .init = setup, .fini = teardown);
TestSuite(report_html, .init = setup, .fini = teardown);

static int occurrences(const char *text, const char *part) {
    int count = 0;
    while ((text = strstr(text, part))) {
        text += strlen(part);
        count++;
    }
    return count;
}

static void expect_contains(const char *text, const char *part) {
    cr_expect(strstr(text, part) != NULL, "'%s' is not in:\n%.3000s", part, text);
}

/* ---- what they are drawn from ----------------------------------------------------------------------------------------------------- */

Test(pictures, the_map_holds_the_worst_of_each_cell) {
    const mla_pictures *p = measure.pictures;
    cr_expect_eq(p->bands, ROWS);
    cr_expect_eq(p->rows_per_band, 1);
    for (int band = 0; band < ROWS; band++)
        for (int block = 0; block < MLA_BLOCKS; block++)
            cr_expect_eq(p->worst[band][block],
                         band == 1 && block == 1    ? 2
                         : band == 2 && block == 15 ? INFINITY
                                                    : 0,
                         "%d %d", band, block);
}

/* |O| / A = 1/4 is in octave [2^-2, 2^-1), the 22nd from 2^-24; an error of 1 in [1, 2), the 16th from 2^-16. */
Test(pictures, the_density_counts_every_finite_element_with_terms) {
    const mla_pictures *p = measure.pictures;
    int64_t total = 0;
    for (int error = 0; error < MLA_ERROR_OCTAVES; error++)
        for (int share = 0; share < MLA_SHARE_OCTAVES; share++)
            total += p->density[error][share];
    cr_expect_eq(total, ELEMENTS - 2);
    cr_expect_eq(p->density[16][22], 1);
    cr_expect_eq(p->density[0][22], ELEMENTS - 3);
}

Test(pictures, many_rows_share_a_band) {
    mla_measure many;
    const mla_problem large = {.batch = 1, .heads = 13, .total_q = 10, .qo_indptr = (int32_t[]){0, 10}};
    cr_assert_eq(mla_measure_init(&many, &large).code, MLA_OK);
    cr_assert_eq(mla_measure_add_pictures(&many, &large).code, MLA_OK);
    cr_expect_eq(many.pictures->rows_per_band, 3); /* 130 rows over 64 bands */
    cr_expect_eq(many.pictures->bands, 44);
    mla_measure_free(&many);
}

Test(pictures, cross_a_process_boundary) {
    const mla_result sent = {.measured = true, .measure = measure};
    mla_result got = {.test = &test};
    size_t bytes;
    void *packed = mla_result_pack(&sent, &bytes);
    cr_expect_eq(bytes, mla_result_packed_bytes(1, true));
    cr_assert(mla_result_unpack(packed, bytes, &got));
    cr_expect_eq(memcmp(got.measure.pictures, measure.pictures, sizeof *measure.pictures), 0);
    mla_measure_free(&got.measure);
    free(packed);
    measure.pictures->bands = MLA_BANDS + 1;
    packed = mla_result_pack(&sent, &bytes);
    cr_expect_not(mla_result_unpack(packed, bytes, &got), "a picture with rows outside itself");
    free(packed);
}

Test(pictures, are_drawn) {
    char *html = mla_html_pictures(&measure);
    cr_expect_eq(occurrences(html, "<svg "), 3);
    cr_expect_eq(occurrences(html, "</svg>"), 3);
    expect_contains(html, "2^0 to 2^1 ulp: 1</title>");
    expect_contains(html, "below 2^-24 ulp: 2046</title>");
    expect_contains(html, "<path class=\"l6\" d=\"M1 1h1v1h-1z\"/>");
    expect_contains(html, "<path class=\"l7\" d=\"M15 2h1v1h-1z\"/>");
    expect_contains(html, "<path class=\"l4\" d=\"M22 39h1v1h-1z\"/>"); /* 2045 of no error, at the bottom */
    expect_contains(html, "max 1</figcaption>");
    free(html);
}

/* Four blocks, the third missing; of its tokens one is too light to tell. 300 units are 4 positions, 37.8 the half height of the upper strip. */
Test(pictures, the_profile_shows_what_is_missing) {
    mla_kv_profile *p = &measure.pictures->profile;
    char *html = mla_html_pictures(&measure);
    cr_expect_eq(occurrences(html, "class=\"profile\""), 0, "there is none");
    free(html);
    *p = (mla_kv_profile){.place = {0, 1, 1, -1}, .blocks = 4, .tokens = 2, .explained = 0.9, .expected = 0.01};
    for (int i = 0; i < 4; i++)
        p->block[i] = (mla_kv_part){2 * i, 2 * i + 2, i == 2 ? -1 : 0.05, 0.01, 0.02};
    p->token[0] = (mla_kv_part){4, 5, -1, 0.01, 0};
    p->token[1] = (mla_kv_part){5, 6, -0.7, 0.9, 0};
    html = mla_html_pictures(&measure);
    cr_expect_eq(occurrences(html, "class=\"profile\""), 1);
    expect_contains(html, "<title>4 to 5: -1, deviation 0.01</title>");
    expect_contains(html, "<title>4: -1, deviation 0.01</title>");
    expect_contains(html, "<path class=\"l6\" d=\"M194.0 45.8h75.0v37.8h-75.0z\">");
    cr_expect_eq(occurrences(html, "class=\"l6\" d=\"M"), 3, "the map's, and one in each strip: 0.05 is within 0.02 and four deviations");
    expect_contains(html, "| seq 0 q 1 head 1 |");
    expect_contains(html, "the fit explains 90 % of the error, of noise 1 %");
    free(html);
    measure.out.outside = measure.out.unwritten = 0;
    html = mla_html_pictures(&measure);
    cr_expect_eq(occurrences(html, "class=\"l6\" d=\"M"), 1, "the map's: a right kernel has no marks");
    free(html);
    p->blocks = MLA_KV_BLOCKS + 1;
    size_t bytes;
    mla_result got = {.test = &test};
    void *packed = mla_result_pack(&(mla_result){.measured = true, .measure = measure}, &bytes);
    cr_expect_not(mla_result_unpack(packed, bytes, &got), "a profile of more blocks than it holds");
    free(packed);
}

Test(pictures, not_asked_for_leave_the_histogram) {
    free(measure.pictures);
    measure.pictures = NULL;
    char *html = mla_html_pictures(&measure);
    cr_expect_eq(occurrences(html, "<svg "), 1);
    free(html);
}

/* ---- the page ------------------------------------------------------------------------------------------------------------------------ */

#define HOSTILE "</script><b onclick=\"x\">'&\x01\xFF"

static mla_result failing(void) {
    mla_result r = {.test = &test, .kernel = "./it's " HOSTILE, .case_line = "q_len=2 kv_len=7", .measured = true, .measure = measure};
    r.verdict = mla_verdict_make(MLA_FAILED, "reason " HOSTILE);
    return r;
}

static char *page_of(const mla_result *results, int count) {
    mla_reports reports;
    char path[] = "/tmp/mla_page.XXXXXX", *text = NULL;
    size_t size = 0;
    close(mkstemp(path));
    FILE *nowhere = fopen("/dev/null", "w");
    mla_reports_begin(&reports, nowhere, NULL, false);
    reports.html_path = path;
    for (int i = 0; i < count; i++)
        cr_assert(mla_reports_add(&reports, &results[i]));
    mla_reports_end(&reports);
    fclose(nowhere);
    FILE *file = fopen(path, "r");
    cr_assert_gt(getdelim(&text, &size, '\0', file), 0);
    fclose(file);
    unlink(path);
    return text;
}

Test(report_html, everything_foreign_is_escaped) {
    const mla_result r = failing();
    char *page = page_of(&r, 1);
    cr_expect_eq(occurrences(page, "</script>"), 1, "the page's own");
    cr_expect_eq(occurrences(page, "<b onclick"), 0);
    cr_expect_eq(occurrences(page, "\x01"), 0);
    expect_contains(page, "<td class=\"kernel\">./it's &lt;/script&gt;&lt;b onclick=&quot;x&quot;&gt;'&amp;\xEF\xBF\xBD\xEF\xBF\xBD</td>");
    expect_contains(page, "data-kernel=\"./it's &lt;/script&gt;");
    free(page);
}

Test(report_html, needs_no_other_file) {
    const mla_result r = failing();
    char *page = page_of(&r, 1);
    cr_expect_eq(occurrences(page, "http"), 0);
    cr_expect_eq(occurrences(page, " src="), 0);
    cr_expect_eq(occurrences(page, "href="), 1, "the icon, which is empty");
    expect_contains(page, "href=\"data:,\"");
    free(page);
}

Test(report_html, numbers_are_those_of_the_measure) {
    mla_result r = failing();
    r.measure.chi = (mla_chi){.rows = 4, .square_sum = INT64_C(9) << 16}; /* in units of 2^-16: chi = sqrt(9 / 4) */
    char *page = page_of(&r, 1), cell[100];
    const double values[] = {1.5, measure.max_err_over_bound, measure.max_ulp, measure.max_cond_ulp};
    for (int i = 0; i < 4; i++) {
        snprintf(cell, sizeof cell, "<td class=\"n\" data-v=\"%.17g\">", values[i]);
        expect_contains(page, cell);
    }
    cr_expect_eq(measure.max_err_over_bound, 2);
    cr_expect_eq(measure.max_cond_ulp, 0.25);
    expect_contains(page, "<li><i>worst chi</i> 1.50</li>");
    expect_contains(page, "<dt>elements</dt><dd>2048</dd>");
    expect_contains(page, "<dt>never written</dt><dd>1</dd>");
    expect_contains(page, "<dt>outside the bound</dt><dd>1</dd>");
    expect_contains(page, "<dt>worst by ulp</dt><dd>seq 0 q 0 head 1 col 40: got 1.007812, exact 1, bound 0.0039</dd>");
    free(page);
}

Test(report_html, a_row_a_result_and_choices_once) {
    mla_result results[3] = {failing(), failing(), {.test = &test, .kernel = "reference", .case_line = ""}};
    results[2].verdict = mla_verdict_make(MLA_SKIPPED, "not here");
    char *page = page_of(results, 3);
    cr_expect_eq(occurrences(page, "<tbody "), 3);
    cr_expect_eq(occurrences(page, "</tbody>"), 3);
    cr_expect_eq(occurrences(page, "<option>FAILED</option>"), 1);
    cr_expect_eq(occurrences(page, "<option>reference</option>"), 1);
    cr_expect_eq(occurrences(page, "class=\"histogram\""), 2);
    expect_contains(page, "<b>2</b> failed");
    expect_contains(page, "<b>1</b> skipped");
    expect_contains(page, "mla-verify: <span class=\"bad\">FAILED</span>");
    expect_contains(page, "<code>mla-verify run --kernel reference --case ''</code>");
    expect_contains(page, "<p>not here</p>");
    free(page);
}

Test(report_html, many_results_are_not_all_drawn) {
    mla_html_album album = {0};
    mla_result r = failing();
    for (int i = 0; i < 250; i++)
        cr_assert(mla_html_album_add(&album, i, &r));
    r.verdict = mla_verdict_make(MLA_PASSED, "");
    for (int i = 250; i < 400; i++)
        cr_assert(mla_html_album_add(&album, i, &r));
    cr_expect_eq(album.bad, 200);
    cr_expect_eq(album.good, 100);
    cr_expect(album.pictures[199] && !album.pictures[200] && album.pictures[250] && !album.pictures[350]);
    mla_html_album_free(&album);
}

/* ---- drift sweep --------------------------------------------------------------------------------------------------------------------- */

/* From 4 to 16, 520 units wide: 8 is in the middle. Errors are in the decade up to 0.1, 240 units high; 2 of [0, 3) is 160 up. The law is 0.1 at 4,
 * 0.1 / 4 at 16: 0.602 decades down. */
Test(sweep_html, points_and_laws_are_where_they_belong) {
    cJSON *sweeps = cJSON_Parse("[{\"kernel\": \"a <kernel>\", \"case\": \"heads=5\", \"over\": \"kv_len\", \"points\": ["
                                "{\"value\": 4, \"rms_error\": 0.01, \"rms_sigma\": 0.02, \"chi\": 2, \"max_err_over_bound\": 0.5},"
                                "{\"value\": 8, \"rms_error\": 0.05, \"rms_sigma\": null, \"chi\": 1, \"max_err_over_bound\": 0.5},"
                                "{\"value\": 16, \"rms_error\": 0.01, \"rms_sigma\": 0.02, \"chi\": 1, \"max_err_over_bound\": 0.5}],"
                                "\"error_law\": {\"slope\": -1, \"standard_error\": 0.25, \"at_one\": 0.4},"
                                "\"sigma_law\": {\"slope\": null, \"standard_error\": null, \"at_one\": null}}]");
    char *page = mla_sweep_html(sweeps);
    expect_contains(page, "a &lt;kernel&gt; heads=5");
    cr_expect_eq(occurrences(page, "<figure class=\"sweep\">"), 2);
    cr_expect_eq(occurrences(page, "<circle "), 3 + 2 + 3 + 3, "an error that is null is not drawn");
    expect_contains(page, "cx=\"312.0\" cy=\"80.2\"><title>8: 0.05</title>");
    expect_contains(page, "cx=\"52.0\" cy=\"88.0\"><title>4: 2</title>");
    expect_contains(page, "<path class=\"roof\" d=\"M52 8.0L572 152.5\"/>");
    expect_contains(page, "kv_len<sup>-1.000 &#177; 0.250</sup>");
    cr_expect_eq(occurrences(page, "<path class=\"dash\""), 1, "chi's 1; sigma has no law");
    free(page);
    cJSON_Delete(sweeps);
}

/* ---- bench: bandwidth 10^10, 10^12 flop a second; 10 flop a byte at 50 GFLOP/s is below the slope's 100 --------------------------------- */

Test(bench_html, the_roofline_has_its_points) {
    const mla_device device = {.description = "a <device>"};
    const mla_bench_result result = {.kernel = "mine & theirs",
                                     .device = device.description,
                                     .case_line = "heads=5",
                                     .work = {.bytes = 100000000, .flops = 1000000000},
                                     .floor = {.seconds = 0.01},
                                     .timing = {[MLA_BENCH_COLD] = {.launches = 5, .median = 0.02}}};
    mla_bench_report report = {.results = &result, .num_results = 1};
    report.devices[0] =
        (mla_bench_device){.device = &device, .yardstick = {.ceiling = {.bandwidth = 1e10, .matrix_rate = 1e12}, .matrix = "products of"}};
    char *page = mla_bench_html(&report);
    expect_contains(page, "<b>a &lt;device&gt;</b>");
    expect_contains(page, "<td class=\"n\" data-v=\"20000\">20000.00</td>");
    expect_contains(page, "<td class=\"n\" data-v=\"0.5\">0.500</td>");
    expect_contains(page, "d=\"M48.0 104.0L308.0 8.0H568\""); /* enters at 1 flop a byte, two decades below the top; ridge at 100 */
    expect_contains(page, "cx=\"178.0\" cy=\"70.4\"><title>mine &amp; theirs, heads=5, cold: 0.05 TFLOP/s</title>");
    cr_expect_eq(occurrences(page, "<circle "), 1);
    free(page);
}
