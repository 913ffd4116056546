/* Saving and restoring an exported learner: a header of 32 bytes, the floats in the order of the struct, CRC-32; all numbers
   are little-endian with four bytes. meshnn/export/snapshot.py reads and writes the same format. The core does not compile
   this file. */

static inline void net_put(unsigned char *bytes, uint32_t at, uint32_t word) {
    bytes[at] = (unsigned char)(word & 255u);
    bytes[at + 1u] = (unsigned char)((word >> 8) & 255u);
    bytes[at + 2u] = (unsigned char)((word >> 16) & 255u);
    bytes[at + 3u] = (unsigned char)((word >> 24) & 255u);
}

static inline uint32_t net_get(const unsigned char *bytes, uint32_t at) {
    return (uint32_t)bytes[at] | ((uint32_t)bytes[at + 1u] << 8) | ((uint32_t)bytes[at + 2u] << 16)
        | ((uint32_t)bytes[at + 3u] << 24);
}

static inline uint32_t net_crc(const unsigned char *bytes, uint32_t count) {
    uint32_t crc = 0xffffffffu;
    int i;
    for (; count; count--) {
        crc ^= *bytes++;
        for (i = 0; i < 8; i++) crc = (crc >> 1) ^ ((crc & 1u) ? 0xedb88320u : 0u);
    }
    return crc ^ 0xffffffffu;
}

static inline uint32_t net_save(const net_learner *l, unsigned char *bytes, int all) {
    const uint32_t end = (all ? NET_SAVED_ALL : NET_SAVED) - 4u;
    const float *from = (const float *)(const void *)l;
    uint32_t at;
    net_put(bytes, 0u, NET_MAGIC);
    net_put(bytes, 4u, NET_VERSION);
    net_put(bytes, 8u, all ? 1u : 0u);
    net_put(bytes, 12u, NET_KIND);
    net_put(bytes, 16u, NET_GRAPH);
    net_put(bytes, 20u, NET_PARAMETERS);
    net_put(bytes, 24u, l->clock[0]);
    net_put(bytes, 28u, l->clock[1]);
    for (at = 32u; at < end; at += 4u) net_put(bytes, at, net_bits(*from++));
    net_put(bytes, end, net_crc(bytes, end));
    return end + 4u;
}

static inline int net_restore(net_learner *l, const unsigned char *bytes, uint32_t size) {
    float *to = (float *)(void *)l;
    uint32_t at;
    if (size < 36u) return 1;
    if (net_get(bytes, 0u) != NET_MAGIC || net_get(bytes, 4u) != NET_VERSION) return 2;
    if (net_get(bytes, 16u) != NET_GRAPH || (net_get(bytes, 8u) && net_get(bytes, 12u) != NET_KIND)) return 3;
    if (size != (net_get(bytes, 8u) ? NET_SAVED_ALL : NET_SAVED)) return 1;
    if (net_get(bytes, size - 4u) != net_crc(bytes, size - 4u)) return 4;
    for (at = 32u; at < size - 4u; at += 4u) {
        if (!net_finite(net_from_bits(net_get(bytes, at)))) return 5;
    }
    for (at = 32u; at < size - 4u; at += 4u) *to++ = net_from_bits(net_get(bytes, at));
    l->clock[0] = net_get(bytes, 24u);
    l->clock[1] = net_get(bytes, 28u);
    return 0;
}
