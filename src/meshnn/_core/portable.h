/* A net that learns from every sample, in float with the same bits on every machine.

     s  (NEURONS)      states                J  influences d s / d theta: a column per parameter, on the rows it reaches
     d  (ROWS)         slopes of a tick      h  (PARAMETERS) dy / dtheta of one output
     P  (COVARIANCES)  covariance, the upper half row by row: P[i, i], P[i, i + 1], ...     u = P h, S = h' P h

   Rows are neurons that are not clamped. Parameters that reach the same rows are a group; a group has a list of the edges
   among its rows. Every operation is rounded to float, and sums run in the order of the lists.

   The extended Kalman filter takes one output after the other: for independent noise that is the same as all at once. A
   label is learned by its logistic loss with only the net made linear: alpha = target - p(y + S alpha). A class among
   several is such a label of the margin y_c - log(sum of exp(y_j) over j != c).

   This is the only source: the core compiles it for nets of any size (portable.c defines NET_ sizes, flags and settings as
   fields of the learner, net_ tables as pointers), and export copies it into headers for one net, with constants instead,
   see portable_math.h. NET_ARRAY(name, size) declares a local array; the core has a buffer for each. */
#include "portable_math.h"

static inline float net_bounded(float x, float most) {
    return x > most ? most : (x < -most ? -most : x);
}

/* weight k: the parameters, and behind them the fixed weights */
static inline float net_weight(const net_learner *l, net_index k) {
    if (NET_FIXED) {
        return k < NET_PARAMETERS ? l->theta[k] : net_fixed[k - NET_PARAMETERS];
    } else {
        return l->theta[k];
    }
}

/* the standard deviation, 0 if the number has always been the same */
static inline float net_deviation(float mean, float variance) {
    const float deviation = net_sqrt(variance);
    return deviation > 1e-06f * net_abs(mean) ? deviation : 0.0f;
}

/* x with mean 0 and variance 1, clipped to `cut`; `missing` where it is not finite or has never varied */
static inline float net_standardise(float x, const float *moments, net_index n, net_index i, float cut, float missing) {
    const float deviation = net_deviation(moments[n + i], moments[2u * n + i]);
    if (deviation > 0.0f && net_finite(x)) {
        return net_bounded((net_bounded(x, 1e+15f) - moments[n + i]) / deviation, cut);
    }
    return missing;
}

/* update the moments, rows of n: samples seen, mean, variance; count, mean and squares of a block, and its outliers */
static inline void net_observe(const float *given, float *moments, net_index n) {
    net_index i;
    for (i = 0u; i < n; i++) {
        float *m = moments + i;
        const float value = net_bounded(given[i], 1e+15f), mean = m[n], deviation = net_deviation(mean, m[2u * n]);
        float delta = value - mean, rate;
        if (!net_finite(given[i])) continue;
        if (m[0] >= 30.0f && deviation > 0.0f && net_abs(delta) > 10.0f * deviation) { /* an outlier is clipped */
            delta = delta > 0.0f ? 10.0f * deviation : -(10.0f * deviation);
            m[6u * n] += 1.0f;
        }
        m[0] += 1.0f;
        rate = 1.0f / m[0];
        if (rate < 1.0f / 2000.0f) rate = 1.0f / 2000.0f;
        m[n] = mean + rate * delta;
        m[2u * n] = (1.0f - rate) * (m[2u * n] + rate * delta * delta);
        m[3u * n] += 1.0f;
        delta = value - m[4u * n];
        m[4u * n] += delta / m[3u * n];
        m[5u * n] += delta * (value - m[4u * n]);
        if (m[3u * n] >= 128.0f) { /* start again from a block of outliers, or one that varies far less */
            const float block = m[5u * n] / 128.0f;
            const int varied = net_deviation(m[4u * n], block) > 0.0f;
            if (m[6u * n] > 0.5f * 128.0f || (varied && block < 1e-04f * m[2u * n])) {
                m[0] = 128.0f;
                m[n] = m[4u * n];
                m[2u * n] = block;
            }
            m[3u * n] = m[4u * n] = m[5u * n] = m[6u * n] = 0.0f;
        }
    }
}

static inline void net_clear(net_learner *l) {
    net_index k;
    for (k = 0u; k < NET_INFLUENCES; k++) l->J[k] = 0.0f;
}

/* the sums over the edges within a group, for one column of J */
static inline void net_pull(const net_learner *l, const float *J, const float *w, net_index first, net_index size,
                            float *column) {
    net_index k, e = net_sub_ptr[first];
    (void)l;
    (void)e;
    for (k = 0u; k < size; k++) {
        const float *a = J, *end = w + (net_sub_ptr[first + k + 1u] - net_sub_ptr[first + k]);
        float total = 0.0f;
        if (NET_RUNS) a += net_sub_from[first + k];
        while (w < end) {
            if (NET_RUNS) {
                total += *w++ * *a++;
            } else {
                total += *w++ * a[net_sub_src[e++]];
            }
        }
        column[k] = total;
    }
}

/* the same for four columns: lists and weights are read once for all */
static inline void net_pull_four(const net_learner *l, const float *J, const float *w, net_index first, net_index size,
                                 float *column) {
    net_index k, e = net_sub_ptr[first];
    (void)l;
    (void)e;
    for (k = 0u; k < size; k++, column++) {
        const float *end = w + (net_sub_ptr[first + k + 1u] - net_sub_ptr[first + k]);
        const float *a = J, *b, *c, *d;
        float p = 0.0f, q = 0.0f, r = 0.0f, s = 0.0f;
        if (NET_RUNS) a += net_sub_from[first + k];
        b = a + size;
        c = b + size;
        d = c + size;
        while (w < end) {
            const float x = *w++;
            if (NET_RUNS) {
                p += x * *a++;
                q += x * *b++;
                r += x * *c++;
                s += x * *d++;
            } else {
                const net_index from = net_sub_src[e++];
                p += x * a[from];
                q += x * b[from];
                r += x * c[from];
                s += x * d[from];
            }
        }
        column[0] = p;
        column[NET_MOST_ROWS] = q;
        column[2u * NET_MOST_ROWS] = r;
        column[3u * NET_MOST_ROWS] = s;
    }
}

/* the influences after a tick, in place: column by column, J = d (A J + states at the sources of the parameter) */
static inline void net_carry(net_learner *l, const float *d) {
    NET_ARRAY(column, 4u * NET_MOST_ROWS);
    NET_ARRAY(w, NET_MOST_EDGES);
    float *J = l->J;
    net_index g, i, k, e, c, many;
    for (g = 0u; g < NET_GROUPS; g++) {
        const net_index first = net_row_ptr[g], last = net_row_ptr[g + 1u], end = net_par_ptr[g + 1u];
        const net_index size = last - first, base = net_sub_ptr[first], stop = net_sub_ptr[last];
        for (k = base; k < stop; k++) w[k - base] = net_weight(l, net_sub_num[k]);
        for (i = net_par_ptr[g]; i < end; i += many) {
            many = end - i < 4u ? 1u : 4u;
            if (many == 4u) {
                net_pull_four(l, J, w, first, size, column);
            } else {
                net_pull(l, J, w, first, size, column);
            }
            for (c = 0u; c < many; c++) {
                float *here = column + c * NET_MOST_ROWS;
                for (e = net_edge_ptr[i + c]; e < net_edge_ptr[i + c + 1u]; e++) {
                    here[net_edge_row[e]] += l->s[net_edge_src[e]];
                }
                for (k = first; k < last; k++) *J++ = *here++ * d[net_rows[k]];
            }
        }
    }
}

/* h = dy / dtheta of output o */
static inline void net_derivatives(const net_learner *l, net_index o, float *h) {
    const float *J = l->J;
    net_index g, i;
    for (i = 0u; i < NET_PARAMETERS; i++) h[i] = 0.0f;
    for (g = 0u; g < NET_GROUPS; g++) {
        const net_index size = (net_index)(net_row_ptr[g + 1u] - net_row_ptr[g]), place = net_out_row[g * NET_OUTPUTS + o];
        for (i = net_par_ptr[g]; i < net_par_ptr[g + 1u]; i++) {
            if (place < size) h[net_par[i]] = J[place];
            J += size;
        }
    }
}

static inline void net_reset(net_learner *l) {
    net_index j;
    for (j = NET_CLAMPED; j < NET_NEURONS; j++) l->s[j] = 0.0f;
    if (!NET_FROZEN) net_clear(l);
}

static inline void net_step(net_learner *l, const float x[NET_INPUTS], float y[NET_OUTPUTS]) {
    NET_ARRAY(t, NET_ROWS);
    NET_ARRAY(d, NET_ROWS);
    float total;
    net_index i, r, p, tick;
    if (!NET_CARRIES) net_reset(l);
    for (i = 0u; i < NET_INPUTS; i++) {
        if (NET_SCALED) {
            l->s[i] = net_standardise(x[i], l->x_moments, NET_INPUTS, i, 4.0f, 0.0f);
        } else {
            l->s[i] = net_finite(x[i]) ? x[i] : 0.0f;
        }
    }
    for (tick = 0u; tick < NET_TICKS; tick++) {
        for (r = 0u; r < NET_ROWS; r++) {
            total = 0.0f;
            for (p = net_ptr[r]; p < net_ptr[r + 1u]; p++) total += net_weight(l, net_num[p]) * l->s[net_col[p]];
            t[r] = net_activate(net_code[r], total, &d[r]);
        }
        if (!NET_FROZEN) net_carry(l, d);
        for (r = 0u; r < NET_ROWS; r++) l->s[NET_CLAMPED + r] = t[r];
    }
    if (!NET_FROZEN) {
        total = 0.0f;
        for (i = 0u; i < NET_NEURONS; i++) total += l->s[i] * 0.0f;
        if (total != 0.0f) { /* NaN: some state is not finite */
            net_reset(l);
            l->clock[3] += 1u;
        }
    }
    for (i = 0u; i < NET_OUTPUTS; i++) {
        y[i] = l->s[NET_NEURONS - NET_OUTPUTS + i];
        if (NET_SCALED_TARGETS) {
            y[i] = l->y_moments[NET_OUTPUTS + i]
                + y[i] * net_deviation(l->y_moments[NET_OUTPUTS + i], l->y_moments[2u * NET_OUTPUTS + i]);
        }
    }
    if (!NET_FROZEN) {
        l->clock[0] += 1u;
        if (NET_SCALED) net_observe(x, l->x_moments, NET_INPUTS);
    }
}

/* g = dE / dy; whether there is anything to learn */
static inline int net_slopes(const net_learner *l, const float *target, float *g) {
    const float *y = l->s + (NET_NEURONS - NET_OUTPUTS);
    int some = 0;
    net_index o;
    if (NET_CLASSES) {
        float top = y[0], total = 0.0f;
        if (!(target[0] >= 0.0f && target[0] < (float)NET_OUTPUTS)) return 0;
        for (o = 1u; o < NET_OUTPUTS; o++) {
            if (y[o] > top) top = y[o];
        }
        for (o = 0u; o < NET_OUTPUTS; o++) {
            g[o] = net_exp(y[o] - top);
            total += g[o];
        }
        for (o = 0u; o < NET_OUTPUTS; o++) g[o] = g[o] / total;
        g[(net_index)target[0]] -= 1.0f;
        some = 1;
    } else {
        for (o = 0u; o < NET_OUTPUTS; o++) {
            g[o] = 0.0f;
            if (!net_finite(target[o])) continue;
            some = 1;
            if (NET_LABELS) {
                const float x = net_exp(-net_abs(y[o])), less = x / (1.0f + x);
                g[o] = y[o] > 0.0f ? (1.0f - target[o]) - less : less - target[o];
            } else {
                g[o] = y[o] - target[o];
            }
        }
    }
    return some;
}

/* the gradient of the loss by the parameters; whether there is anything to learn */
static inline int net_gradient(const net_learner *l, const float *target, float *grad) {
    NET_ARRAY(g, NET_OUTPUTS);
    NET_ARRAY(h, NET_PARAMETERS);
    net_index o, k;
    for (k = 0u; k < NET_PARAMETERS; k++) grad[k] = 0.0f;
    if (!net_slopes(l, target, g)) return 0;
    for (o = 0u; o < NET_OUTPUTS; o++) {
        if (g[o] != 0.0f) {
            net_derivatives(l, o, h);
            for (k = 0u; k < NET_PARAMETERS; k++) grad[k] += g[o] * h[k];
        }
    }
    return 1;
}

/* shorten the gradient to the length NET_CLIP; whether it is finite */
static inline int net_shorten(const net_learner *l, float *grad) {
    float most = 0.0f, total = 0.0f, norm, shrink = 1.0f, grow = 1.0f;
    net_index k;
    (void)l;
    for (k = 0u; k < NET_PARAMETERS; k++) {
        if (!net_finite(grad[k])) return 0;
        if (net_abs(grad[k]) > most) most = net_abs(grad[k]);
    }
    if (most > 1.152921504606847e+18f) { /* squares would overflow: by 2 to the power -64 and back */
        shrink = 5.421010862427522e-20f;
        grow = 1.8446744073709552e+19f;
    }
    for (k = 0u; k < NET_PARAMETERS; k++) {
        const float part = grad[k] * shrink;
        total += part * part;
    }
    norm = net_sqrt(total) * grow;
    if (norm > NET_CLIP) {
        for (k = 0u; k < NET_PARAMETERS; k++) grad[k] = grad[k] / norm * NET_CLIP;
    }
    return 1;
}

/* a step of Adam, or of gradient descent with momentum */
static inline void net_descend(net_learner *l, const float *target) {
    NET_ARRAY(grad, NET_PARAMETERS);
    net_index k;
    if (!net_gradient(l, target, grad)) return;
    if (!net_shorten(l, grad)) {
        net_clear(l);
        l->clock[2] += 1u;
        return;
    }
    l->clock[1] += 1u;
    if (NET_ADAM) {
        float step, scale;
        l->memo[0] = l->memo[0] * NET_BETA1;
        l->memo[1] = l->memo[1] * NET_BETA2;
        step = NET_RATE / (1.0f - l->memo[0]);
        scale = 1.0f / (1.0f - l->memo[1]);
        for (k = 0u; k < NET_PARAMETERS; k++) {
            const float slope = grad[k] + NET_L2 * l->theta[k];
            l->first[k] = NET_BETA1 * l->first[k] + (1.0f - NET_BETA1) * slope;
            l->second[k] = NET_BETA2 * l->second[k] + (1.0f - NET_BETA2) * slope * slope;
            l->theta[k] = l->theta[k] - step * l->first[k] / (net_sqrt(l->second[k] * scale) + NET_EPSILON);
        }
    } else {
        for (k = 0u; k < NET_PARAMETERS; k++) {
            l->first[k] = NET_BETA1 * l->first[k] + (grad[k] + NET_L2 * l->theta[k]);
            l->theta[k] = l->theta[k] - NET_RATE * l->first[k];
        }
    }
}

/* u = P h; return h' P h. Two rows at once, each sum in the order of one row after the other */
static inline float net_multiply(const net_learner *l, const float *h, float *u) {
    const float *P = l->P;
    float S = 0.0f;
    net_index i, j;
    for (i = 0u; i < NET_PARAMETERS; i++) u[i] = 0.0f;
    for (i = 0u; i + 1u < NET_PARAMETERS; i += 2u) {
        const float *Q = P + (NET_PARAMETERS - i);
        const float x = h[i], y = h[i + 1u];
        float total = *P++ * x, other = *Q++ * y;
        total += *P * y;
        u[i + 1u] += *P++ * x;
        for (j = i + 2u; j < NET_PARAMETERS; j++) {
            const float p = *P++, q = *Q++, z = h[j];
            total += p * z;
            other += q * z;
            u[j] = (u[j] + p * x) + q * y;
        }
        u[i] += total;
        u[i + 1u] += other;
        P = Q;
    }
    if (i < NET_PARAMETERS) u[i] += *P * h[i];
    for (i = 0u; i < NET_PARAMETERS; i++) S += h[i] * u[i];
    return S;
}

/* set the covariances of parameter k to 0; those of all parameters if there is no k */
static inline void net_isolate(net_learner *l, net_index k) {
    float *P = l->P;
    net_index i, j;
    for (i = 0u; i < NET_PARAMETERS; i++) {
        P++;
        for (j = i + 1u; j < NET_PARAMETERS; j++, P++) {
            if (i == k || j == k || k == NET_PARAMETERS) *P = 0.0f;
        }
    }
}

/* P -= share u u'. A variance that one sample reduces to almost nothing is rounding error: it loses its covariances */
static inline void net_subtract(net_learner *l, const float *u, float share) {
    float *p = l->P;
    int lost = 0;
    net_index i;
    for (i = 0u; i < NET_PARAMETERS; i++) {
        const float a = u[i] * share, least = *p * 1e-05f, *from = u + i, *end = u + NET_PARAMETERS;
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
    p = l->P;
    for (i = 0u; i < NET_PARAMETERS; i++) {
        if (!(*p > 0.0f)) {
            *p = -*p;
            net_isolate(l, i);
        }
        p += NET_PARAMETERS - i;
    }
}

/* return S, or NaN; shift y by what this sample has changed so far; agreement of h with the last change */
static inline float net_spread(net_learner *l, const float *h, float *u, const float *moved, float *y, float *agreement) {
    float S = net_multiply(l, h, u), shift = 0.0f;
    net_index k;
    *agreement = 0.0f;
    if (S < 0.0f) {
        net_isolate(l, NET_PARAMETERS);
        S = net_multiply(l, h, u);
    }
    if (!(net_finite(S) && net_finite(*y))) {
        float total = 0.0f;
        for (k = 0u; k < NET_COVARIANCES; k++) total += l->P[k] * 0.0f;
        if (total != 0.0f) net_isolate(l, NET_PARAMETERS);
        return net_from_bits(0x7fc00000u);
    }
    for (k = 0u; k < NET_PARAMETERS; k++) {
        shift += h[k] * moved[k];
        *agreement += h[k] * l->last[k];
    }
    *y = *y + shift;
    return S;
}

/* alpha = target - p(y + S alpha), by Newton steps within bounds; p and its slope p (1 - p), before and after */
static inline float net_logistic(float y, float S, float target, float p[2], float slope[2]) {
    float alpha = 0.0f, low = 0.0f, high = 0.0f;
    int step;
    for (step = 0; step < 30; step++) {
        const float eta = y + S * alpha, x = net_exp(-net_abs(eta));
        float left, proposed, change;
        p[1] = (eta < 0.0f ? x : 1.0f) / (1.0f + x);
        slope[1] = x / ((1.0f + x) * (1.0f + x));
        left = (target - p[1]) - alpha;
        if (step == 0) {
            p[0] = p[1];
            slope[0] = slope[1];
            high = left > 0.0f ? left : 0.0f;
            low = left > 0.0f ? 0.0f : left;
        }
        if (left > 0.0f) {
            low = alpha;
        } else {
            high = alpha;
        }
        proposed = alpha + left / (1.0f + slope[1] * S);
        if (!(proposed > low && proposed < high)) proposed = 0.5f * (low + high);
        change = net_abs(S * (proposed - alpha));
        alpha = proposed;
        if (change < 1e-03f) break;
    }
    return alpha;
}

/* learn one number y with derivatives h, output c, from its target; whether it was learned */
static inline int net_take(net_learner *l, const float *h, float *u, float *moved, net_index c, float y, float target,
                           float *agreement) {
    const float S = net_spread(l, h, u, moved, &y, agreement);
    float alpha, share, residual;
    net_index k;
    if (S != S) return 0;
    if (NET_LOGISTIC) {
        float p[2] = {0.0f, 0.0f}, slope[2] = {0.0f, 0.0f}, curvature;
        (void)c;
        alpha = net_logistic(y, S, target, p, slope);
        residual = target - p[0];
        if (NET_CLASSES) {
            curvature = 0.5f * (p[0] + p[1]);
            curvature = curvature * (1.0f - curvature);
        } else {
            curvature = slope[0] > slope[1] ? slope[0] : slope[1];
        }
        share = curvature / (1.0f + curvature * S);
    } else {
        const float error = target - y, noise = l->noise[c], expected = noise + S;
        float judged = noise;
        (void)expected;
        if (NET_TAILS > 0.0f) {
            /* an error far beyond the expected one is assumed to be noise */
            const float weight = (NET_TAILS + 1.0f) / (NET_TAILS + error * error / expected);
            if (weight < 1.0f) judged = expected / weight - S;
        }
        share = 1.0f / (S + judged);
        alpha = error * share;
        residual = error / judged;
        if (NET_NOISE_RATE > 0.0f) {
            float rate = 1.0f / (l->memo[0] + 1.0f), square = error * error, changed;
            if (rate < NET_NOISE_RATE) rate = NET_NOISE_RATE;
            if (!(square < 25.0f * expected)) square = 25.0f * expected;
            square = square - S;
            if (square < 0.0f) square = 0.0f;
            changed = noise + rate * (square - noise);
            l->noise[c] = changed > NET_NOISE_FLOOR ? changed : NET_NOISE_FLOOR;
        }
    }
    if (!(net_finite(alpha) && net_finite(share))) return 0;
    *agreement = residual * *agreement;
    for (k = 0u; k < NET_PARAMETERS; k++) {
        const float after = net_bounded(l->theta[k] + alpha * u[k], NET_BOUND);
        moved[k] += after - l->theta[k];
        l->theta[k] = after;
    }
    net_subtract(l, u, share);
    return 1;
}

/* after a sample: adapt q to the agreement of changes, let variances grow by q, decay the parameters a little */
static inline void net_forget(net_learner *l, const float *moved, float agreement) {
    float q, steep, fade, *P = l->P;
    net_index k;
    (void)agreement;
    if (NET_Q_RATE > 0.0f) {
        l->memo[2] += (agreement * agreement - l->memo[2]) / 100.0f;
        if (l->memo[2] > 0.0f && net_finite(l->memo[2])) {
            q = l->memo[1] * net_exp(NET_Q_RATE * net_bounded(agreement / net_sqrt(l->memo[2]), 3.0f));
            q = q < NET_Q_MIN ? NET_Q_MIN : q;
            l->memo[1] = q > NET_Q_MAX ? NET_Q_MAX : q;
        } else {
            l->memo[2] = 0.0f;
        }
    }
    q = l->memo[1];
    steep = q / NET_CEILING;
    fade = 0.5f * steep;
    fade = 1.0f - (fade > 0.5f ? 0.5f : fade);
    for (k = 0u; k < NET_PARAMETERS; k++) {
        const float more = q - *P * steep, v = *P * (1.0f + 1e-05f) + (more > 0.0f ? more : 0.0f);
        *P = v < NET_CEILING ? v : NET_CEILING;
        P += NET_PARAMETERS - k;
        l->theta[k] = l->theta[k] * fade;
        l->last[k] = moved[k];
    }
    l->memo[0] += 1.0f;
}

/* the margin of a class over the others; g = its derivative by all outputs */
static inline float net_margin(const net_learner *l, net_index label, float *g) {
    const float *y = l->s + (NET_NEURONS - NET_OUTPUTS);
    float top = y[label == 0u ? 1u : 0u], total = 0.0f;
    net_index o;
    for (o = 0u; o < NET_OUTPUTS; o++) {
        if (o != label && y[o] > top) top = y[o];
    }
    for (o = 0u; o < NET_OUTPUTS; o++) {
        if (o != label) {
            g[o] = net_exp(y[o] - top);
            total += g[o];
        }
    }
    for (o = 0u; o < NET_OUTPUTS; o++) g[o] = o == label ? 1.0f : -(g[o] / total);
    return y[label] - (top + net_log(total));
}

/* an update of the filter */
static inline void net_filter(net_learner *l, const float *target) {
    NET_ARRAY(h, NET_PARAMETERS);
    NET_ARRAY(u, NET_PARAMETERS);
    NET_ARRAY(moved, NET_PARAMETERS);
    float agreement = 0.0f;
    int learned = 0, failed = 0;
    net_index o, k;
    for (k = 0u; k < NET_PARAMETERS; k++) moved[k] = 0.0f;
    if (NET_CLASSES) {
        NET_ARRAY(g, NET_OUTPUTS);
        float margin;
        if (!(NET_OUTPUTS > 1u && target[0] >= 0.0f && target[0] < (float)NET_OUTPUTS)) return;
        margin = net_margin(l, (net_index)target[0], g);
        for (k = 0u; k < NET_PARAMETERS; k++) u[k] = 0.0f;
        for (o = 0u; o < NET_OUTPUTS; o++) {
            net_derivatives(l, o, h);
            for (k = 0u; k < NET_PARAMETERS; k++) u[k] += g[o] * h[k];
        }
        for (k = 0u; k < NET_PARAMETERS; k++) h[k] = u[k];
        learned = net_take(l, h, u, moved, 0u, margin, 1.0f, &agreement);
        failed = !learned;
    } else {
        for (o = 0u; o < NET_OUTPUTS; o++) {
            float part;
            if (!net_finite(target[o])) continue;
            net_derivatives(l, o, h);
            if (net_take(l, h, u, moved, o, l->s[NET_NEURONS - NET_OUTPUTS + o], target[o], &part)) {
                agreement += part;
                learned = 1;
            } else {
                failed = 1;
            }
        }
    }
    if (failed) {
        net_clear(l);
        l->clock[2] += 1u;
    }
    if (learned) {
        l->clock[1] += 1u;
        net_forget(l, moved, agreement);
    }
}

static inline void net_update(net_learner *l, const float *target) {
    if (NET_FROZEN) {
        NET_ARRAY(grad, NET_PARAMETERS);
        (void)net_gradient(l, target, grad);
    } else if (NET_FILTERS) {
        net_filter(l, target);
    } else {
        net_descend(l, target);
    }
}

static inline void net_learn(net_learner *l, const float target[NET_TARGETS]) {
    if (l->clock[0] == 0u) return;
    if (NET_SCALED_TARGETS) {
        NET_ARRAY(scaled, NET_TARGETS);
        net_index m;
        for (m = 0u; m < NET_TARGETS; m++) {
            scaled[m] = net_standardise(target[m], l->y_moments, NET_OUTPUTS, m, 100.0f, net_from_bits(0x7fc00000u));
        }
        net_update(l, scaled);
        if (!NET_FROZEN) net_observe(target, l->y_moments, NET_OUTPUTS);
    } else {
        net_update(l, target);
    }
}
