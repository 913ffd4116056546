"""The functions of a learner in C: `kernels/portable.py`, loop by loop, where they are explained.

`@` is the prefix of names, `~` the same in capitals, `$NAME$` a setting; lines between `%if NAME` (or `%not NAME`) and
`%end` stay if the net needs them. See `c_learner.py`.
"""

from __future__ import annotations

__all__ = [
    "BEGIN",
    "CLASSES",
    "FILTER",
    "FILTER_CLASSES",
    "FILTER_LABELS",
    "FILTER_VALUES",
    "FIRST_ORDER",
    "INFLUENCES",
    "LABELS",
    "LEARN",
    "MOMENTS",
    "SAVING",
    "STEP",
    "VALUES",
]

BEGIN = """
static inline int @finite(float x) {
    return (@bits(x) & 0x7f800000u) != 0x7f800000u;
}

static inline float @bounded(float x, float most) {
    return x > most ? most : (x < -most ? -most : x);
}

%if FIXED
/* parameters move, what is behind them does not */
static inline float @weight(const @learner *l, @index k) {
    return k < ~PARAMETERS ? l->theta[k] : @fixed[k - ~PARAMETERS];
}
%end
%not FIXED
static inline float @weight(const @learner *l, @index k) {
    return l->theta[k];
}
%end
"""

MOMENTS = """
static inline float @deviation(float mean, float variance) {
    float deviation = @sqrt(variance);
    return deviation > 1e-06f * @abs(mean) ? deviation : 0.0f;
}

/* to mean 0 and variance 1 as far as seen */
static inline float @standardise(float x, const float *moments, @index n, @index i, float cut, float missing) {
    float deviation = @deviation(moments[n + i], moments[2u * n + i]);
    if (deviation > 0.0f && @finite(x)) {
        return @bounded((@bounded(x, 1e+15f) - moments[n + i]) / deviation, cut);
    }
    return missing;
}

static inline void @observe(const float *given, float *moments, @index n) {
    @index i;
    for (i = 0u; i < n; i++) {
        float value, mean, variance, delta, deviation, rate, away;
        if (!@finite(given[i])) continue;
        value = @bounded(given[i], 1e+15f);
        mean = moments[n + i];
        variance = moments[2u * n + i];
        delta = value - mean;
        deviation = @deviation(mean, variance);
        if (moments[i] >= 30.0f && deviation > 0.0f && @abs(delta) > 10.0f * deviation) {
            delta = delta > 0.0f ? 10.0f * deviation : -(10.0f * deviation);
            moments[6u * n + i] += 1.0f;
        }
        moments[i] += 1.0f;
        rate = 1.0f / moments[i];
        if (rate < 1.0f / 2000.0f) rate = 1.0f / 2000.0f;
        moments[n + i] = mean + rate * delta;
        moments[2u * n + i] = (1.0f - rate) * (variance + rate * delta * delta);
        moments[3u * n + i] += 1.0f;
        away = value - moments[4u * n + i];
        moments[4u * n + i] += away / moments[3u * n + i];
        moments[5u * n + i] += away * (value - moments[4u * n + i]);
        if (moments[3u * n + i] >= 128.0f) {
            float block = moments[5u * n + i] / 128.0f;
            int varied = @deviation(moments[4u * n + i], block) > 0.0f;
            if (moments[6u * n + i] > 0.5f * 128.0f || (varied && block < 1e-04f * moments[2u * n + i])) {
                moments[i] = 128.0f;
                moments[n + i] = moments[4u * n + i];
                moments[2u * n + i] = block;
            }
            moments[3u * n + i] = 0.0f;
            moments[4u * n + i] = 0.0f;
            moments[5u * n + i] = 0.0f;
            moments[6u * n + i] = 0.0f;
        }
    }
}
"""

INFLUENCES = """
static inline void @clear(@learner *l) {
    @index k;
    for (k = 0u; k < ~INFLUENCES; k++) l->J[k] = 0.0f;
}

%if RUNS
/* a column of a group from what it was */
static inline void @pull(const float *J, const float *w, @index first, @index size, float *column) {
    const @index base = @sub_ptr[first];
    @index k;
    for (k = 0u; k < size; k++) {
        const float *stop = w + (@sub_ptr[first + k + 1u] - base), *from = J + @sub_from[first + k];
        const float *weight = w + (@sub_ptr[first + k] - base);
        float total = 0.0f;
        while (weight < stop) total += *weight++ * *from++;
        column[k] = total;
    }
}

/* four at once: lists and weights are read once for all */
static inline void @pull_four(const float *J, const float *w, @index first, @index size, float *column) {
    const float *weight = w;
    @index k;
    for (k = 0u; k < size; k++) {
        const float *stop = w + (@sub_ptr[first + k + 1u] - @sub_ptr[first]), *a = J + @sub_from[first + k];
        const float *b = a + size, *c = b + size, *d = c + size;
        float p = 0.0f, q = 0.0f, r = 0.0f, s = 0.0f;
        while (weight < stop) {
            const float x = *weight++;
            p += x * *a++;
            q += x * *b++;
            r += x * *c++;
            s += x * *d++;
        }
        column[k] = p;
        column[~MOST_ROWS + k] = q;
        column[2u * ~MOST_ROWS + k] = r;
        column[3u * ~MOST_ROWS + k] = s;
    }
}
%end
%if LISTS
/* a column of a group from what it was */
static inline void @pull(const float *J, const float *w, @index first, @index size, float *column) {
    @index k, q = @sub_ptr[first];
    for (k = 0u; k < size; k++) {
        const @index stop = @sub_ptr[first + k + 1u];
        float total = 0.0f;
        for (; q < stop; q++) total += *w++ * J[@sub_src[q]];
        column[k] = total;
    }
}

/* four at once: lists and weights are read once for all */
static inline void @pull_four(const float *J, const float *w, @index first, @index size, float *column) {
    const float *b = J + size, *c = b + size, *d = c + size;
    @index k, e = @sub_ptr[first];
    for (k = 0u; k < size; k++) {
        const @index stop = @sub_ptr[first + k + 1u];
        float p = 0.0f, q = 0.0f, r = 0.0f, s = 0.0f;
        for (; e < stop; e++) {
            const float x = *w++;
            const @index at = @sub_src[e];
            p += x * J[at];
            q += x * b[at];
            r += x * c[at];
            s += x * d[at];
        }
        column[k] = p;
        column[~MOST_ROWS + k] = q;
        column[2u * ~MOST_ROWS + k] = r;
        column[3u * ~MOST_ROWS + k] = s;
    }
}
%end

/* the influences after a tick, in place */
static inline void @carry(@learner *l, const float *d) {
    float column[4u * ~MOST_ROWS];
%if SUB
    float w[~MOST_EDGES];
%end
    float *J = l->J;
    @index g, i, k, e, c, many;
    for (g = 0u; g < ~GROUPS; g++) {
        const @index first = @row_ptr[g], last = @row_ptr[g + 1u], end = @par_ptr[g + 1u];
%if SUB
        const @index size = last - first, base = @sub_ptr[first], stop = @sub_ptr[last];
        for (k = base; k < stop; k++) w[k - base] = @weight(l, @sub_num[k]);
%end
        for (i = @par_ptr[g]; i < end; i += many) {
            many = end - i < 4u ? 1u : 4u;
%if SUB
            if (many == 4u) {
                @pull_four(J, w, first, size, column);
            } else {
                @pull(J, w, first, size, column);
            }
%end
%not SUB
            for (k = 0u; k < 4u * ~MOST_ROWS; k++) column[k] = 0.0f;
%end
            for (c = 0u; c < many; c++) {
                float *here = column + c * ~MOST_ROWS;
                for (e = @edge_ptr[i + c]; e < @edge_ptr[i + c + 1u]; e++) here[@edge_row[e]] += l->s[@edge_src[e]];
                for (k = first; k < last; k++) *J++ = *here++ * d[@rows[k]];
            }
        }
    }
}

/* h = dy / dtheta of output o */
static inline void @derivatives(const @learner *l, @index o, float *h) {
    const float *J = l->J;
    @index g, i;
    for (i = 0u; i < ~PARAMETERS; i++) h[i] = 0.0f;
    for (g = 0u; g < ~GROUPS; g++) {
        const @index size = (@index)(@row_ptr[g + 1u] - @row_ptr[g]), place = @out_row[g * ~OUTPUTS + o];
        for (i = @par_ptr[g]; i < @par_ptr[g + 1u]; i++) {
            if (place < size) h[@par[i]] = J[place];
            J += size;
        }
    }
}
"""

STEP = """
static inline void @reset(@learner *l) {
    @index j;
    for (j = ~CLAMPED; j < ~NEURONS; j++) l->s[j] = 0.0f;
    @clear(l);
}

static inline void @step(@learner *l, const float x[~INPUTS], float y[~OUTPUTS]) {
    float t[~ROWS], d[~ROWS], total;
    @index i, r, p;
    unsigned tick;
%not CARRIES
    @reset(l);
%end
    for (i = 0u; i < ~INPUTS; i++) {
%if SCALED
        l->s[i] = @standardise(x[i], l->x_moments, ~INPUTS, i, 4.0f, 0.0f);
%end
%not SCALED
        l->s[i] = @finite(x[i]) ? x[i] : 0.0f;
%end
    }
    for (tick = 0u; tick < ~TICKS; tick++) {
        for (r = 0u; r < ~ROWS; r++) {
            total = 0.0f;
            for (p = @ptr[r]; p < @ptr[r + 1u]; p++) total += @weight(l, @num[p]) * l->s[@col[p]];
            t[r] = @phi(r, total, &d[r]);
        }
        @carry(l, d);
        for (r = 0u; r < ~ROWS; r++) l->s[~CLAMPED + r] = t[r];
    }
    total = 0.0f;
    for (i = 0u; i < ~NEURONS; i++) total += l->s[i] * 0.0f;
    if (total != 0.0f) { /* NaN: some state is not finite */
        @reset(l);
        l->clock[3] += 1u;
    }
    for (i = 0u; i < ~OUTPUTS; i++) {
        y[i] = l->s[~NEURONS - ~OUTPUTS + i];
%if SCALED_TARGETS
        y[i] = l->y_moments[~OUTPUTS + i]
            + y[i] * @deviation(l->y_moments[~OUTPUTS + i], l->y_moments[2u * ~OUTPUTS + i]);
%end
    }
    l->clock[0] += 1u;
%if SCALED
    @observe(x, l->x_moments, ~INPUTS);
%end
}
"""

# -- first order: slopes of the loss, then a step ---------------------------------------------------------------------

CLASSES = """
/* g = dE / dy; whether there is anything to learn */
static inline int @slopes(const float *y, const float *target, float *g) {
    float top = y[0], total = 0.0f;
    @index o;
    if (!(target[0] >= 0.0f && target[0] < (float)~OUTPUTS)) return 0;
    for (o = 1u; o < ~OUTPUTS; o++) {
        if (y[o] > top) top = y[o];
    }
    for (o = 0u; o < ~OUTPUTS; o++) {
        g[o] = @exp(y[o] - top);
        total += g[o];
    }
    for (o = 0u; o < ~OUTPUTS; o++) g[o] = g[o] / total;
    g[(@index)target[0]] -= 1.0f;
    return 1;
}
"""

LABELS = """
/* g = dE / dy; whether there is anything to learn */
static inline int @slopes(const float *y, const float *target, float *g) {
    int some = 0;
    @index o;
    for (o = 0u; o < ~OUTPUTS; o++) {
        float x, less;
        g[o] = 0.0f;
        if (!@finite(target[o])) continue;
        some = 1;
        x = @exp(-@abs(y[o]));
        less = x / (1.0f + x);
        g[o] = y[o] > 0.0f ? (1.0f - target[o]) - less : less - target[o];
    }
    return some;
}
"""

VALUES = """
/* g = dE / dy; whether there is anything to learn */
static inline int @slopes(const float *y, const float *target, float *g) {
    int some = 0;
    @index o;
    for (o = 0u; o < ~OUTPUTS; o++) {
        g[o] = 0.0f;
        if (!@finite(target[o])) continue;
        some = 1;
        g[o] = y[o] - target[o];
    }
    return some;
}
"""

FIRST_ORDER = """
static inline void @update(@learner *l, const float *target) {
    float g[~OUTPUTS], h[~PARAMETERS], grad[~PARAMETERS];
    float most = 0.0f, total = 0.0f, norm, shrink = 1.0f, grow = 1.0f;
    @index o, k;
    for (k = 0u; k < ~PARAMETERS; k++) grad[k] = 0.0f;
    if (!@slopes(l->s + (~NEURONS - ~OUTPUTS), target, g)) return;
    for (o = 0u; o < ~OUTPUTS; o++) {
        if (g[o] != 0.0f) {
            @derivatives(l, o, h);
            for (k = 0u; k < ~PARAMETERS; k++) grad[k] += g[o] * h[k];
        }
    }
    for (k = 0u; k < ~PARAMETERS; k++) {
        if (!@finite(grad[k])) {
            @clear(l);
            l->clock[2] += 1u;
            return;
        }
        if (@abs(grad[k]) > most) most = @abs(grad[k]);
    }
    if (most > 1.152921504606847e+18f) { /* squares would overflow */
        shrink = 5.421010862427522e-20f;
        grow = 1.8446744073709552e+19f;
    }
    for (k = 0u; k < ~PARAMETERS; k++) {
        float part = grad[k] * shrink;
        total += part * part;
    }
    norm = @sqrt(total) * grow;
    if (norm > $CLIP$) {
        for (k = 0u; k < ~PARAMETERS; k++) grad[k] = grad[k] / norm * $CLIP$;
    }
    l->clock[1] += 1u;
%if ADAM
    l->memo[0] = l->memo[0] * $BETA1$;
    l->memo[1] = l->memo[1] * $BETA2$;
    {
        const float step = $RATE$ / (1.0f - l->memo[0]), scale = 1.0f / (1.0f - l->memo[1]);
        for (k = 0u; k < ~PARAMETERS; k++) {
            const float slope = grad[k] + $L2$ * l->theta[k];
            l->first[k] = $BETA1$ * l->first[k] + $BETA1_REST$ * slope;
            l->second[k] = $BETA2$ * l->second[k] + $BETA2_REST$ * slope * slope;
            l->theta[k] = l->theta[k] - step * l->first[k] / (@sqrt(l->second[k] * scale) + $EPSILON$);
        }
    }
%end
%not ADAM
    for (k = 0u; k < ~PARAMETERS; k++) {
        l->first[k] = $BETA1$ * l->first[k] + (grad[k] + $L2$ * l->theta[k]);
        l->theta[k] = l->theta[k] - $RATE$ * l->first[k];
    }
%end
}
"""

# -- second order: the filter ----------------------------------------------------------------------------------------

FILTER = """
/* u = P h; h' P h. Two rows at once, each sum in the order that one after the other would have */
static inline float @multiply(const float *P, const float *h, float *u) {
    float S = 0.0f;
    @index i, j;
    for (i = 0u; i < ~PARAMETERS; i++) u[i] = 0.0f;
    for (i = 0u; i + 1u < ~PARAMETERS; i += 2u) {
        const float *Q = P + (~PARAMETERS - i);
        const float x = h[i], y = h[i + 1u];
        float total = *P++ * x, other = *Q++ * y;
        total += *P * y;
        u[i + 1u] += *P++ * x;
        for (j = i + 2u; j < ~PARAMETERS; j++) {
            const float p = *P++, q = *Q++, z = h[j];
            total += p * z;
            other += q * z;
            u[j] = (u[j] + p * x) + q * y;
        }
        u[i] += total;
        u[i + 1u] += other;
        P = Q;
    }
    if (i < ~PARAMETERS) u[i] += *P * h[i];
    for (i = 0u; i < ~PARAMETERS; i++) S += h[i] * u[i];
    return S;
}

/* parameter k has no covariances; none has any if there is no k */
static inline void @alone(float *P, @index k) {
    @index i, j;
    for (i = 0u; i < ~PARAMETERS; i++) {
        P++;
        for (j = i + 1u; j < ~PARAMETERS; j++, P++) {
            if (i == k || j == k || k == ~PARAMETERS) *P = 0.0f;
        }
    }
}

static inline int @sound(const float *P) {
    float total = 0.0f;
    @index k;
    for (k = 0u; k < ~COVARIANCES; k++) total += P[k] * 0.0f;
    return total == 0.0f;
}

/* P -= share u u', and variances stay above 0 */
static inline void @subtract(float *P, const float *u, float share) {
    float *p = P;
    int lost = 0;
    @index i;
    for (i = 0u; i < ~PARAMETERS; i++) {
        const float a = u[i] * share, least = *p * 1e-05f, *from = u + i, *end = u + ~PARAMETERS;
        float *begin = p;
        while (from < end) {
            *p = *p - a * *from++;
            p++;
        }
        if (!(*begin > least)) {
            *begin = -least;
            lost = 1;
        }
    }
    if (!lost) return;
    p = P;
    for (i = 0u; i < ~PARAMETERS; i++) {
        if (!(*p > 0.0f)) {
            *p = -*p;
            @alone(P, i);
        }
        p += ~PARAMETERS - i;
    }
}

/* what h says about y before its target is looked at: S, or NaN; y is moved by what this sample has taught so far */
static inline float @spread(@learner *l, const float *h, float *u, const float *moved, float *y, float *alike) {
    float S = @multiply(l->P, h, u), shift = 0.0f;
    @index k;
    *alike = 0.0f;
    if (S < 0.0f) {
        @alone(l->P, ~PARAMETERS);
        S = @multiply(l->P, h, u);
    }
    if (!(@finite(S) && @finite(*y))) {
        if (!@sound(l->P)) @alone(l->P, ~PARAMETERS);
        return @from_bits(0x7fc00000u);
    }
    for (k = 0u; k < ~PARAMETERS; k++) {
        shift += h[k] * moved[k];
        *alike += h[k] * l->last[k];
    }
    *y = *y + shift;
    return S;
}

static inline void @move(@learner *l, const float *u, float *moved, float alpha, float share) {
    @index k;
    for (k = 0u; k < ~PARAMETERS; k++) {
        const float after = @bounded(l->theta[k] + alpha * u[k], $BOUND$);
        moved[k] += after - l->theta[k];
        l->theta[k] = after;
    }
    @subtract(l->P, u, share);
}

/* what the sample leaves: another q, larger variances, parameters a little nearer to 0 */
static inline void @forget(@learner *l, const float *moved, float alike) {
    float q, steep, fade, *P = l->P;
    @index k;
%if FINDS_Q
    l->memo[2] += (alike * alike - l->memo[2]) / 100.0f;
    if (l->memo[2] > 0.0f && @finite(l->memo[2])) {
        q = l->memo[1] * @exp($Q_RATE$ * @bounded(alike / @sqrt(l->memo[2]), 3.0f));
        q = q < $Q_MIN$ ? $Q_MIN$ : q;
        l->memo[1] = q > $Q_MAX$ ? $Q_MAX$ : q;
    } else {
        l->memo[2] = 0.0f;
    }
%end
%not FINDS_Q
    (void)alike;
%end
    q = l->memo[1];
    steep = q / $CEILING$;
    fade = 0.5f * steep;
    fade = 1.0f - (fade > 0.5f ? 0.5f : fade);
    for (k = 0u; k < ~PARAMETERS; k++) {
        float v = *P;
        const float more = q - v * steep;
        v = v * (1.0f + 1e-05f) + (more > 0.0f ? more : 0.0f);
        *P = v < $CEILING$ ? v : $CEILING$;
        P += ~PARAMETERS - k;
        l->theta[k] = l->theta[k] * fade;
        l->last[k] = moved[k];
    }
    l->memo[0] += 1.0f;
}
"""

FILTER_VALUES = """
/* a number y that depends on the parameters by h, and its target; whether it was learned */
static inline int @take(@learner *l, const float *h, float *u, float *moved, @index c, float y, float target,
                        float *alike) {
    float S = @spread(l, h, u, moved, &y, alike);
    float error, noise, expected, judged, share, alpha;
    if (S != S) return 0;
    error = target - y;
    noise = l->noise[c];
    expected = noise + S;
    (void)expected;
    judged = noise;
%if TAILS
    {
        const float weight = ($TAILS$ + 1.0f) / ($TAILS$ + error * error / expected);
        if (weight < 1.0f) judged = expected / weight - S;
    }
%end
    share = 1.0f / (S + judged);
    alpha = error * share;
%if NOISE
    {
        float rate = 1.0f / (l->memo[0] + 1.0f), square = error * error;
        if (rate < $NOISE_RATE$) rate = $NOISE_RATE$;
        if (!(square < 25.0f * expected)) square = 25.0f * expected;
        square = square - S;
        if (square < 0.0f) square = 0.0f;
        noise = noise + rate * (square - noise);
        l->noise[c] = noise > $NOISE_FLOOR$ ? noise : $NOISE_FLOOR$;
    }
%end
    if (!(@finite(alpha) && @finite(share))) return 0;
    *alike = error / judged * *alike;
    @move(l, u, moved, alpha, share);
    return 1;
}
"""

FILTER_LABELS = """
/* a number y that depends on the parameters by h, and how likely a yes should be; whether it was learned */
static inline int @take(@learner *l, const float *h, float *u, float *moved, @index c, float y, float target,
                        float *alike) {
    float S = @spread(l, h, u, moved, &y, alike);
    float alpha = 0.0f, low = 0.0f, high = 0.0f, before = 0.0f, after = 0.0f, p_before = 0.0f, p = 0.0f, share;
    int step;
    (void)c;
    if (S != S) return 0;
    for (step = 0; step < 30; step++) {
        float eta = y + S * alpha, left, proposed, change, x;
        x = @exp(-@abs(eta));
        p = (eta < 0.0f ? x : 1.0f) / (1.0f + x);
        after = x / ((1.0f + x) * (1.0f + x));
        left = (target - p) - alpha;
        if (step == 0) {
            before = after;
            p_before = p;
            if (left > 0.0f) {
                high = left;
            } else {
                low = left;
            }
        }
        if (left > 0.0f) {
            low = alpha;
        } else {
            high = alpha;
        }
        proposed = alpha + left / (1.0f + after * S);
        if (!(proposed > low && proposed < high)) proposed = 0.5f * (low + high);
        change = @abs(S * (proposed - alpha));
        alpha = proposed;
        if (change < 1e-03f) break;
    }
%if CLASSES
    (void)before;
    p = 0.5f * (p_before + p);
    after = p * (1.0f - p);
%end
%not CLASSES
    if (before > after) after = before;
%end
    share = after / (1.0f + after * S);
    if (!(@finite(alpha) && @finite(share))) return 0;
    *alike = (target - p_before) * *alike;
    @move(l, u, moved, alpha, share);
    return 1;
}
"""

FILTER_CLASSES = """
/* what the output of a class exceeds the others by; g = its derivative by all outputs */
static inline float @margin(const float *y, @index label, float *g) {
    float top = y[label == 0u ? 1u : 0u], total = 0.0f;
    @index o;
    for (o = 0u; o < ~OUTPUTS; o++) {
        if (o != label && y[o] > top) top = y[o];
    }
    for (o = 0u; o < ~OUTPUTS; o++) {
        if (o != label) {
            g[o] = @exp(y[o] - top);
            total += g[o];
        }
    }
    for (o = 0u; o < ~OUTPUTS; o++) g[o] = o == label ? 1.0f : -(g[o] / total);
    return y[label] - (top + @log(total));
}
"""

LEARN = """
%if FILTERS
static inline void @update(@learner *l, const float *target) {
    float h[~PARAMETERS], u[~PARAMETERS], moved[~PARAMETERS];
    const float *y = l->s + (~NEURONS - ~OUTPUTS);
    float alike = 0.0f;
    int learned = 0, failed = 0;
    @index k;
%if CLASSES
    float g[~OUTPUTS], margin;
    @index o;
    if (!(target[0] >= 0.0f && target[0] < (float)~OUTPUTS)) return;
    margin = @margin(y, (@index)target[0], g);
    for (k = 0u; k < ~PARAMETERS; k++) {
        moved[k] = 0.0f;
        u[k] = 0.0f;
    }
    for (o = 0u; o < ~OUTPUTS; o++) {
        @derivatives(l, o, h);
        for (k = 0u; k < ~PARAMETERS; k++) u[k] += g[o] * h[k];
    }
    for (k = 0u; k < ~PARAMETERS; k++) h[k] = u[k];
    learned = @take(l, h, u, moved, 0u, margin, 1.0f, &alike);
    failed = !learned;
%end
%not CLASSES
    @index c;
    for (k = 0u; k < ~PARAMETERS; k++) moved[k] = 0.0f;
    for (c = 0u; c < ~OUTPUTS; c++) {
        float part;
        if (!@finite(target[c])) continue;
        @derivatives(l, c, h);
        if (@take(l, h, u, moved, c, y[c], target[c], &part)) {
            alike += part;
            learned = 1;
        } else {
            failed = 1;
        }
    }
%end
    if (failed) {
        @clear(l);
        l->clock[2] += 1u;
    }
    if (learned) {
        l->clock[1] += 1u;
        @forget(l, moved, alike);
    }
}
%end

static inline void @learn(@learner *l, const float target[~TARGETS]) {
    if (l->clock[0] == 0u) return;
%if SCALED_TARGETS
    {
        float scaled[~TARGETS];
        @index m;
        for (m = 0u; m < ~TARGETS; m++) {
            scaled[m] = @standardise(target[m], l->y_moments, ~OUTPUTS, m, 100.0f, @from_bits(0x7fc00000u));
        }
        @update(l, scaled);
        @observe(target, l->y_moments, ~OUTPUTS);
    }
%end
%not SCALED_TARGETS
    @update(l, target);
%end
}
"""

SAVING = """
static inline void @put(unsigned char *bytes, uint32_t at, uint32_t word) {
    bytes[at] = (unsigned char)(word & 255u);
    bytes[at + 1u] = (unsigned char)((word >> 8) & 255u);
    bytes[at + 2u] = (unsigned char)((word >> 16) & 255u);
    bytes[at + 3u] = (unsigned char)((word >> 24) & 255u);
}

static inline uint32_t @get(const unsigned char *bytes, uint32_t at) {
    return (uint32_t)bytes[at] | ((uint32_t)bytes[at + 1u] << 8) | ((uint32_t)bytes[at + 2u] << 16)
        | ((uint32_t)bytes[at + 3u] << 24);
}

static inline uint32_t @put_floats(unsigned char *bytes, uint32_t at, const float *from, uint32_t count) {
    for (; count; count--, at += 4u) @put(bytes, at, @bits(*from++));
    return at;
}

static inline uint32_t @get_floats(const unsigned char *bytes, uint32_t at, float *to, uint32_t count) {
    for (; count; count--, at += 4u) *to++ = @from_bits(@get(bytes, at));
    return at;
}

static inline uint32_t @crc(const unsigned char *bytes, uint32_t count) {
    uint32_t crc = 0xffffffffu;
    int i;
    for (; count; count--) {
        crc ^= *bytes++;
        for (i = 0; i < 8; i++) crc = (crc >> 1) ^ ((crc & 1u) ? 0xedb88320u : 0u);
    }
    return crc ^ 0xffffffffu;
}
"""
