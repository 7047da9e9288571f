// Shared by the drawing kernels: the graph, the edges that may not be drawn, and the output of an
// edge. A file that includes this has its own copy.

// The vertices of a subgraph, 64 per word, with the number of members before each word.
struct alignas(16) Held {
    u64 vertices, before;
};

struct Graph {
    // Of the whole graph, in any memory.
    const u64 *indptr;
    // Of the whole graph, or of a subgraph.
    const u32 *indices;
    // The subgraph's vertices; null without one.
    const Held *held;
    const u64 *subgraph_indptr;
    u64 num_edges;
    u32 num_vertices;
    // Whether the ids of edges are needed.
    u32 ids;
    u64 unused[2];
};
#define GRAPH const Graph graph

struct InEdges {
    // Their sources, and the id of the first edge, if ids are needed or `sources` are not a
    // subgraph's.
    const u32 *sources;
    u64 start;
    u32 degree;
    // The error code of the vertex, which then has no edges.
    u32 problem;
};

__device__ __forceinline__ InEdges in_edges(const Graph &graph, u32 vertex) {
    if (vertex >= graph.num_vertices) return {nullptr, 0, 0, OUT_OF_RANGE};
    if (graph.held) {
        const Held word = graph.held[vertex / 64];
        const u64 bit = 1ull << (vertex % 64);
        if (!(word.vertices & bit)) return {nullptr, 0, 0, NOT_HELD};
        const u64 at = word.before + __popcll(word.vertices & (bit - 1));
        const u64 first = graph.subgraph_indptr[at];
        const u32 degree = (u32)(graph.subgraph_indptr[at + 1] - first);
        return {graph.indices + first, graph.ids ? graph.indptr[vertex] : 0, degree, 0};
    }
    const u64 start = graph.indptr[vertex], end = graph.indptr[(u64)vertex + 1];
    if (start > end || end > graph.num_edges) return {nullptr, 0, 0, TOPOLOGY};
    if (end - start > 0xFFFFFFFFull) return {nullptr, 0, 0, DEGREE};
    return {graph.indices + start, start, (u32)(end - start), 0};
}

// --- edges that may not be drawn, ascending ---

struct Excluded {
    const u64 *edges;
    u64 count;
};
#define EXCLUDED const u64 *excluded_edges, u64 excluded_count
#define EXCLUDED_OF(name) const Excluded name = {excluded_edges, excluded_count}

// Number of the first `count` edges that are below `edge`.
__device__ __forceinline__ u64 below_edge(const u64 *edges, u64 count, u64 edge) {
    u64 from = 0;
    while (from < count) {
        const u64 middle = from + (count - from) / 2;
        if (edges[middle] < edge) from = middle + 1;
        else count = middle;
    }
    return from;
}

// The excluded edges among the in-edges of a vertex.
__device__ __forceinline__ Excluded within(Excluded all, InEdges in) {
    if (all.count == 0 || in.degree == 0) return {all.edges, 0};
    const u64 from = below_edge(all.edges, all.count, in.start);
    const u64 *edges = all.edges + from;
    return {edges, below_edge(edges, all.count - from, in.start + in.degree)};
}

// Turns a rank among the edges that are not excluded into the offset among all: skips the excluded
// edges whose rank is at most this one, where the rank of an excluded edge is its offset minus the
// number of excluded ones before it.
__device__ __forceinline__ u32 skip(u32 rank, u64 start, Excluded excluded) {
    u64 from = 0, to = excluded.count;
    while (from < to) {
        const u64 middle = from + (to - from) / 2;
        if (excluded.edges[middle] - start - middle <= rank) from = middle + 1;
        else to = middle;
    }
    return rank + (u32)from;
}

// --- output of an edge ---

struct Sampled {
    // Slots of the sources.
    u32 *local;
    // At most one of the following.
    u64 *edges;
    u32 *edge_counts;
    u64 *status;
};
#define SAMPLED u32 *sampled_local, u64 *sampled_edges, u32 *sampled_counts, u64 *sampled_status
#define SAMPLED_OF(name) const Sampled name = {sampled_local, sampled_edges, sampled_counts, sampled_status}

// Stores edge number `offset` of `in` at place `at`. Sources are noted after the frontier, which
// has `frontier` vertices.
__device__ __forceinline__ void take(const Graph &graph, Table table, Sampled sampled, u32 frontier, u32 at, InEdges in, u32 offset) {
    u32 source = in.sources[offset];
    if (source >= graph.num_vertices) {
        report(sampled.status, source, SOURCE);
        source = 0;
    }
    sampled.local[at] = note(table, source, frontier + at);
    const u64 edge = in.start + offset;
    if (sampled.edges) sampled.edges[at] = edge;
    if (sampled.edge_counts) atomicAdd(&sampled.edge_counts[edge], 1u);
}

// A frontier: up to `most` vertices, `*len` of them valid, noted in the table at their positions.
struct Frontier {
    const u32 *vertices;
    u64 len, most;
    // Whether to check for repeated vertices.
    bool check;
};
#define FRONTIER const u32 *frontier_vertices, const u64 *frontier_len, u64 frontier_most, u32 frontier_check
#define FRONTIER_OF(name) const Frontier name = {frontier_vertices, *frontier_len, frontier_most, frontier_check != 0}

// Charges `count` edges to `vertex`, which occurs once in a frontier.
__device__ __forceinline__ void charge(u32 *work, u32 vertex, u32 count, u64 where, u64 *status) {
    if (!work || count == 0) return;
    const u32 sum = work[vertex] + count;
    if (sum < count) report(status, where, OVERFLOW_OF_COUNTER);
    work[vertex] = sum;
}

// Reports the problems of vertex `i` of the frontier, or charges its `count` of the edges `in`.
__device__ __forceinline__ void tell(const Graph &graph, Frontier frontier, Table table, u64 i, InEdges in, u32 count, u32 *work, u64 *status) {
    const u32 vertex = frontier.vertices[i];
    if (in.problem) report(status, i, in.problem);
    else charge(work, vertex, count, i, status);
    if (frontier.check && vertex < graph.num_vertices && !is_first(table, vertex, (u32)i)) report(status, i, REPEATED);
}

// Sorts 2^n values by the threads of a block, in memory that all of them see.
template <typename T> __device__ __forceinline__ void sort_of_block(T *values, u32 size) {
    for (u32 run = 2; run <= size; run *= 2) {
        for (u32 apart = run / 2; apart > 0; apart /= 2) {
            __syncthreads();
            for (u32 i = threadIdx.x; i < size / 2; i += blockDim.x) {
                const u32 low = 2 * i - (i & (apart - 1)), high = low + apart;
                const T a = values[low], b = values[high];
                if ((a > b) == ((low & run) == 0)) {
                    values[low] = b;
                    values[high] = a;
                }
            }
        }
    }
    __syncthreads();
}
