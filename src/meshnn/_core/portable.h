/* A net that learns from every sample, in float with the same bits on every machine.

     s  (NEURONS)      states                J  influences d s / d theta: a column per parameter, on the rows it reaches
     d  (ROWS)         slopes of a tick      h  (PARAMETERS) dy / dtheta of one output

   Rows are neurons that are not clamped. A group consists of the parameters that reach the same rows, and has a list of the
   edges between these rows. Every operation is rounded to float, and sums are computed in the order of the lists.

   The filter and the update of every learner are in portable_learn.h.

   The core compiles this file for nets of any size (portable.c defines NET_ sizes, flags and settings as fields of the
   learner, and net_ tables as pointers). The export copies its functions into headers for one net, with constants instead;
   see portable_math.h. NET_ARRAY(name, size) declares a local array; the core has a buffer for each. */
#include "portable_math.h"

static inline float net_bounded(float x, float most) {
    return x > most ? most : (x < -most ? -most : x);
}

/* weight k: the parameters, followed by the fixed weights */
static inline float net_weight(const net_learner *l, net_index k) {
    if (NET_FIXED) {
        return k < NET_PARAMETERS ? l->theta[k] : net_fixed[k - NET_PARAMETERS];
    } else {
        return l->theta[k];
    }
}

/* the standard deviation; 0 if all values so far were the same */
static inline float net_deviation(float mean, float variance) {
    const float deviation = net_sqrt(variance);
    return deviation > 1e-06f * net_abs(mean) ? deviation : 0.0f;
}

/* x scaled to mean 0 and variance 1 and clipped to `cut`; `missing` if x is not finite or all values were the same */
static inline float net_standardise(float x, const float *moments, net_index n, net_index i, float cut, float missing) {
    const float deviation = net_deviation(moments[n + i], moments[2u * n + i]);
    if (deviation > 0.0f && net_finite(x)) {
        return net_bounded((net_bounded(x, 1e+15f) - moments[n + i]) / deviation, cut);
    }
    return missing;
}

/* update the moments, rows of n: count, mean, variance; and of the current block: count, mean, squares, outliers */
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
        if (m[3u * n] >= 128.0f) { /* restart from a block of outliers or with a far smaller variance */
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

/* the same for four columns, which read lists and weights only once */
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
        if (total != 0.0f) { /* NaN: a state is not finite */
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

/* g = dE / dy; return whether a target is given */
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

/* the gradient of the loss with respect to the parameters; return whether a target is given */
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

/* clip the norm of the gradient to NET_CLIP; return whether the gradient is finite */
static inline int net_shorten(const net_learner *l, float *grad) {
    float most = 0.0f, total = 0.0f, norm, shrink = 1.0f, grow = 1.0f;
    net_index k;
    (void)l;
    for (k = 0u; k < NET_PARAMETERS; k++) {
        if (!net_finite(grad[k])) return 0;
        if (net_abs(grad[k]) > most) most = net_abs(grad[k]);
    }
    if (most > 1.152921504606847e+18f) { /* squares would overflow: scale by 2^-64 and back */
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
