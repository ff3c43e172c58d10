// Means of rows, and rows less their means.
#include "common/rows.cuh"
#include "row_mean/params.h"

namespace aicf::row_mean {

template <int kThreads, int kRows, class Element>
__global__ void grouped(const RowMeanParams p, bool is_aligned) {
    __shared__ float partials[RowGroup<kThreads, kRows>::kPartials];
    const RowGroup<kThreads, kRows> group;
    const auto* x = static_cast<const Element*>(p.x) + group.find_source(p.rows) * p.ldx;
    float sum = 0.0f;
    visit_row<Element, kThreads>(p.columns, group.rank, [&](std::int64_t column, int num_valid) {
        const Pack<Element> pack = load_pack_or(x + column, num_valid, is_aligned, 0.0f);
        for (const float value : pack.values) sum += value;
    });
    const float mean = group.reduce_sum(sum, partials) / static_cast<float>(p.columns);
    if (group.row >= p.rows) return;
    if (group.rank == 0) p.mean[group.row] = mean;
    auto* y = static_cast<Element*>(p.y) + group.row * p.ldy;
    visit_row<Element, kThreads>(p.columns, group.rank, [&](std::int64_t column, int num_valid) {
        Pack<Element> pack = load_pack_or(x + column, num_valid, is_aligned, 0.0f);
        for (float& value : pack.values) value -= mean;
        store_pack_part(y + column, pack, num_valid, is_aligned);
    });
}

}  // namespace aicf::row_mean
