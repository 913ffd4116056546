/* Learning from a target: the extended Kalman filter, and the update of every learner.

     P  (COVARIANCES)  covariance, the upper triangle by rows: P[i, i], P[i, i + 1], ...     u = P h, S = h' P h

   The extended Kalman filter processes one output after the other, which for independent noise equals a joint update. A
   label has the logistic loss, and only the net is linearised: alpha = target - p(y + S alpha). With several classes, the
   label belongs to the margin y_c - log(sum of exp(y_j) over j != c). */
#include "portable.h"

/* u = P h; return h' P h. Two rows at a time, with every sum in the order of one row after the other */
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

/* set the covariances of parameter k to 0; of all parameters if k is NET_PARAMETERS */
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

/* P -= share u u'. If rounding errors reduce a variance to almost 0, its covariances are set to 0 */
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

/* return S, or NaN; add the effect of this sample's changes so far to y; agreement: h times the last change */
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

/* solve alpha = target - p(y + S alpha) by Newton steps within bounds; p and its slope p (1 - p), before and after */
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

/* update the parameters from the target of output c with value y and derivatives h; return whether it succeeded */
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
            /* an error far above the expected one is assumed to be noise */
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

/* after a sample: adapt q to the agreement of changes, add q to the variances, decay the parameters slightly */
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

/* the margin of a class over the others; g is its derivative with respect to all outputs */
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

/* an update by the filter */
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
