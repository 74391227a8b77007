// Attention composed of plain vendor calls, for what the vendor's own attention does not take.
#include "attention.h"

#include <algorithm>

#include "product.h"

namespace shim {
namespace {

// Elements of a tile of scores: tokens are taken some at a time.
constexpr int64_t TILE = int64_t{1} << 20;
// The score of what a token does not see: finite, so that no difference of two is a NaN.
constexpr float LOWEST = -3.0e38f;

struct Sizes {
    int64_t heads;
    int64_t kv_heads;
    int64_t share;  // query heads of one KV head
    int64_t dim;
    int64_t page_size;
    int64_t page;  // elements
};

Sizes sizes_of(const Attention& call) {
    const int64_t heads = call.q.shape[1];
    const int64_t kv_heads = call.k.shape[2];
    const int64_t page_size = call.k.shape[1];
    const int64_t dim = call.q.shape[2];
    return {heads, kv_heads, heads / kv_heads, dim, page_size, kv_heads * page_size * dim};
}

// Positions low .. high - 1 of a row's sequence, as far as some token of a tile sees them.
struct Range {
    int64_t low;
    int64_t high;

    int64_t size() const { return high - low; }
};

Range seen_by(const Attention& call, const Stretch& part) {
    const int64_t length = part.row < 0 ? 0 : call.lengths[part.row];
    const auto* first = call.positions + part.first;
    const auto ends = std::minmax_element(first, first + part.tokens);
    Range range{0, length};
    if (call.causal) {
        range.high = std::min<int64_t>(length, int64_t{*ends.second} + 1);
    }
    if (call.window > 0) {
        range.low = std::max<int64_t>(0, int64_t{*ends.first} - call.window + 1);
    }
    return range;
}

// Whether every token of the tile sees every position of the range.
bool sees_all(const Attention& call, const Stretch& part, const Range& range) {
    for (int64_t t = part.first; t < part.first + part.tokens; ++t) {
        const int64_t position = call.positions[t];
        const bool before = !call.causal || position >= range.high - 1;
        const bool after = call.window <= 0 || position - call.window < range.low;
        if (!before || !after) {
            return false;
        }
    }
    return true;
}

// Workspace of a tile, taken once for the largest: sizes are bounds, no tile uses more.
struct Room {
    float* scores;
    float* other;
    bool* seen;
    bool* recent;
    int* columns;
};

int64_t bounded(int64_t tokens, int64_t row) {
    return std::min(tokens * row, std::max(row, TILE));
}

Room room_for(Run& run, int64_t tokens, int64_t heads, int64_t width) {
    const int64_t scores = bounded(tokens, heads * width);
    return {run.take<float>(scores), run.take<float>(scores), run.take<bool>(scores),
            run.take<bool>(scores), run.take<int>(width)};
}

// A range of a row's keys or values as float32 [KV heads, positions, dim].
Array<float> gathered(Run& run, const Attention& call, const View& held, int64_t row,
                      const Range& range) {
    const Sizes s = sizes_of(call);
    const int64_t first = range.low / s.page_size;
    const int64_t pages = (range.high - 1) / s.page_size + 1 - first;
    auto* table = static_cast<int*>(call.page_table.at) + row * call.page_table.shape[1] + first;
    Array<float> y{nullptr, {s.kv_heads, range.size(), s.dim}};
    with_row(run, held.dtype, [&](auto one) {
        using T = decltype(one);
        const Array<T> cache{static_cast<T*>(held.at), {held.shape[0], s.page}};
        const Array<T> found = rows_of(run, cache, Array<int>{table, {pages}});
        const int64_t step = s.page_size * s.dim;
        const View by_head{found.at, held.dtype,
                           {s.kv_heads, pages, s.page_size, s.dim},
                           {step, s.page, s.dim, 1}};
        const Array<T> whole = dense<T>(run, by_head);
        const View cut{whole.at + (range.low - first * s.page_size) * s.dim, held.dtype, y.shape,
                       {pages * step, s.dim, 1}};
        if (run.measuring()) {
            run.take<T>(count(y.shape));  // another range is cut out of its pages
        }
        y = floats(run, cut);
    });
    return y;
}

// 1 flag a token and position of the range, [tokens, positions].
void mark_seen(Run& run, const Attention& call, const Stretch& part, const Range& range,
               const Room& room) {
    const int64_t width = range.size();
    const Array<int> columns{room.columns, {1, width}};
    VENDOR(run, api::range<int>, columns.at, static_cast<int>(range.low), 1, width);
    const Array<int> positions{const_cast<int*>(call.device_positions) + part.first,
                               {part.tokens, 1}};
    const int64_t size = part.tokens * width;
    if (call.causal) {
        COMPARE(run, api::broadcast_less_equal<int>, columns, positions, room.seen);
    } else {
        VENDOR(run, api::constant<bool>, room.seen, size, true);
    }
    if (call.window > 0) {
        const Array<int> width_of_window = constant(run, static_cast<int>(call.window));
        const Array<int> before =
            ZIP(run, api::broadcast_sub<int>, positions, width_of_window);
        COMPARE(run, api::broadcast_less_than<int>, before, columns, room.recent);
        VENDOR(run, api::logical_and<bool>, room.seen, room.recent, room.seen, size);
    }
}

// Keeps scores [KV heads, tokens, share, positions] where the token sees the position.
void keep_seen(Run& run, const Room& room, const Shape& shape, float other) {
    VENDOR(run, api::constant<float>, room.other, count(shape), other);
    const Shape flags{1, shape[1], 1, shape[3]};
    VENDOR(run, api::select<float>, room.seen, room.scores, room.other, room.scores, flags, shape);
}

// Scores to weights that are not normalized, in place. Returns their sums [KV heads, tokens *
// share, 1], at least 1 where a token may see nothing: the largest weight is exactly 1.
Array<float> weigh(Run& run, const Room& room, const Shape& shape, bool masked) {
    const int64_t width = shape[3];
    const Array<float> scores{room.scores, {shape[0], shape[1] * shape[2], width}};
    if (masked) {
        keep_seen(run, room, shape, LOWEST);
    }
    const Array<float> peaks = REDUCE(run, api::reduce_max<float>, scores);
    ZIP(run, api::broadcast_sub<float>, scores, peaks, scores.at);
    MAP(run, api::exp<float>, scores, scores.at);
    if (masked) {
        keep_seen(run, room, shape, 0.0f);
    }
    const Array<float> sums = REDUCE(run, api::reduce_sum<float>, scores);
    if (masked) {
        ZIP(run, api::broadcast_max<float>, sums, constant(run, 1.0f), sums.at);
    }
    return sums;
}

void batched(Run& run, const Array<float>& a, const Array<float>& b, bool turned, float* y,
             double alpha) {
    const int64_t m = a.shape[1];
    const int64_t k = a.shape[2];
    const int64_t n = b.shape[turned ? 1 : 2];
    const float* unknown = nullptr;
    VENDOR(run, (api::fc_batched<float, float, float, float>), a.shape[0], false, turned, m, n, k,
           static_cast<float>(alpha), a.at, m * k, b.at, n * k, 0.0f, y, m * n, unknown, unknown);
}

// Queries of a tile [tokens, heads, dim] as [KV heads, tokens * share, dim].
Array<float> queries(Run& run, const Attention& call, const Stretch& part) {
    const Sizes s = sizes_of(call);
    const int64_t size = call.q.dtype == FLOAT32 ? 4 : 2;
    const int64_t row = call.q.strides[0];
    const View turned{static_cast<char*>(call.q.at) + part.first * row * size, call.q.dtype,
                      {s.kv_heads, part.tokens, s.share, s.dim},
                      {s.share * s.dim, row, s.dim, 1}};
    return floats(run, turned).with({s.kv_heads, part.tokens * s.share, s.dim});
}

View output_of(const Attention& call, const Stretch& part) {
    const int64_t size = call.y.dtype == FLOAT32 ? 4 : 2;
    const int64_t row = call.y.shape[1] * call.y.shape[2];
    return {static_cast<char*>(call.y.at) + part.first * row * size, call.y.dtype,
            {part.tokens, call.y.shape[1], call.y.shape[2]}, {row, call.y.shape[2], 1}};
}

// One tile: tokens of one row that fit the room together.
void attend(Run& run, const Attention& call, const Stretch& part, const Range& range,
            const Room& room, bool masked) {
    Scope scope(run);
    const Sizes s = sizes_of(call);
    const Shape shape{s.kv_heads, part.tokens, s.share, range.size()};
    const Array<float> q = queries(run, call, part);
    {
        Scope inner(run);
        const Array<float> keys = gathered(run, call, call.k, part.row, range);
        batched(run, q, keys, true, room.scores, call.scale);
    }
    cap_in_place(run, {room.scores, shape}, call.softcap);
    if (masked) {
        mark_seen(run, call, part, range, room);
    }
    const Array<float> sums = weigh(run, room, shape, masked);
    const Array<float> mixed = run.array<float>(q.shape);
    const Array<float> values = gathered(run, call, call.v, part.row, range);
    const Array<float> weights{room.scores, {s.kv_heads, q.shape[1], range.size()}};
    batched(run, weights, values, false, mixed.at, 1.0);
    ZIP(run, api::broadcast_div<float>, mixed, sums, mixed.at);
    const View turned{mixed.at, FLOAT32, {part.tokens, s.kv_heads, s.share, s.dim},
                      {s.share * s.dim, part.tokens * s.share * s.dim, s.dim, 1}};
    const View output = output_of(call, part);
    store(run, dense<float>(run, turned).with(output.shape), output);
}

// Bounds for everything but the room: the whole stretch at once would take this.
void ask(Run& run, const Attention& call) {
    const int64_t tokens = call.q.shape[0];
    const Range all{0, call.page_table.shape[1] * call.k.shape[1]};
    const Room room = room_for(run, tokens, call.q.shape[1], all.size());
    attend(run, call, {0, tokens, 0}, all, room, true);
    zeros(run, call.y);
}

void attend_stretch(Run& run, const Attention& call, const Stretch& whole, const Room& room) {
    const int64_t heads = call.q.shape[1];
    for (int64_t done = 0; done < whole.tokens;) {
        Stretch part{whole.first + done, whole.tokens - done, whole.row};
        const int64_t width = std::max<int64_t>(seen_by(call, part).size(), 1);
        part.tokens = std::clamp<int64_t>(TILE / (heads * width), 1, part.tokens);
        const Range range = seen_by(call, part);
        if (range.size() <= 0) {
            Scope scope(run);
            zeros(run, output_of(call, part));
        } else {
            attend(run, call, part, range, room, !sees_all(call, part, range));
        }
        done += part.tokens;
    }
}

}  // namespace

Attention attention_of(Run& run) {
    return {run.view(0),
            run.view(1),
            run.view(2),
            run.view(3),
            run.view(8),
            run.host(5),
            run.host(6),
            run.host(7),
            static_cast<const int*>(run.view(6).at),
            run.attribute(0),
            run.attribute(1) != 0,
            static_cast<int64_t>(run.attribute(2)),
            run.attribute(3)};
}

std::vector<Stretch> stretches(const Attention& call) {
    std::vector<Stretch> found;
    for (int64_t t = 0; t < call.q.shape[0]; ++t) {
        if (found.empty() || found.back().row != call.rows[t]) {
            found.push_back({t, 0, call.rows[t]});
        }
        ++found.back().tokens;
    }
    return found;
}

void compose_attention(Run& run, const Attention& call) {
    if (run.measuring()) {
        ask(run, call);
        return;
    }
    const int64_t width = call.page_table.shape[1] * call.k.shape[1];
    const Room room = room_for(run, call.q.shape[0], call.q.shape[1], width);
    for (const Stretch& stretch : stretches(call)) {
        attend_stretch(run, call, stretch, room);
    }
}

}  // namespace shim

OPERATOR(paged_attention_composed) {
    const shim::Attention call = shim::attention_of(run);
    if (call.y.size() != 0) {
        shim::compose_attention(run, call);
    }
}
