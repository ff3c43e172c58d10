// The contract of the one chain that a variant computes: that of the op with the chain's own operands, made at compile time.
//
// So a chain that op.py does not list, built from the sealed sources, is checked as well as one that it does.
#pragma once

#include "common/contract.hpp"
#include "elementwise/chains.hpp"
#include "elementwise/contract.hpp"

namespace aicf::elementwise {

using ChainOfVariant = Chain<kTunables.chain>;

// As op.py lists tensors and attributes.
inline constexpr int kMaxInputs = 8, kMaxOutputs = 4, kCounterTensor = kMaxInputs + kMaxOutputs, kNumTensors = kCounterTensor + 1;
inline constexpr int kChainAttribute = 0, kDtypeAttribute = 1;

struct CaseList {
    contract::TensorCase cases[AICF_DTYPE_COUNT];
    int count;
};

constexpr contract::TensorCase make_case(bool is_present, int dtype, Extent extent) {
    constexpr const char* kTypestrs[] = AICF_DTYPE_TYPESTRS;
    contract::TensorCase made = {};
    made.is_present = is_present;
    made.typestr = dtype == AICF_DTYPE_BOOL ? "|b1" : kTypestrs[dtype];
    made.item_bytes = dtype == AICF_DTYPE_BOOL ? 1 : dtype == AICF_DTYPE_FLOAT32 ? 4 : 2;
    made.rank = 2;
    made.dims[0] = extent == Extent::kFull || extent == Extent::kRows ? 0 : -1;
    made.dims[1] = extent == Extent::kFull || extent == Extent::kColumns ? 1 : -1;
    return made;
}

constexpr int find_dtype(Type type) {
    return type == Type::kBool       ? AICF_DTYPE_BOOL
           : type == Type::kBfloat16 ? AICF_DTYPE_BFLOAT16
           : type == Type::kFloat16  ? AICF_DTYPE_FLOAT16
                                     : AICF_DTYPE_FLOAT32;
}

constexpr CaseList list_cases(Operand operand) {
    if (operand.type != Type::kGeneric) return {{make_case(true, find_dtype(operand.type), operand.extent)}, 1};
    CaseList list = {};
    for (int dtype = 0; dtype < AICF_DTYPE_COUNT; ++dtype) {
        list.cases[dtype] = make_case(true, dtype, operand.extent);
        list.cases[dtype].num_when = 1;
        list.cases[dtype].when[0] = {kDtypeAttribute, dtype};
    }
    list.count = AICF_DTYPE_COUNT;
    return list;
}

template <class Chain>
struct ChainContract {
    struct Lists {
        CaseList of[kNumTensors];
    };
    struct Fields {
        contract::TensorField of[kNumTensors];
    };

    static constexpr Lists make_lists() {
        Lists lists = {};
        for (auto& list : lists.of) list = {{make_case(false, AICF_DTYPE_FLOAT32, Extent::kFull)}, 1};
        for (int i = 0; i < kNumInputs<Chain>; ++i) lists.of[i] = list_cases(Chain::kInputs[i]);
        for (int i = 0; i < kNumOutputs<Chain>; ++i) lists.of[kMaxInputs + i] = list_cases(Chain::kOutputs[i]);
        contract::TensorCase& counter = lists.of[kCounterTensor].cases[0];
        counter.is_present = Chain::kNumDraws > 0;
        counter.typestr = "<i8";
        counter.item_bytes = 8;
        counter.rank = 1;
        counter.dims[0] = -2;
        return lists;
    }
    static constexpr Lists kLists = make_lists();

    static constexpr Fields make_fields() {
        Fields fields = {};
        for (int i = 0; i < kNumTensors; ++i) {
            fields.of[i] = kContract.tensors[i];
            fields.of[i].cases = {kLists.of[i].cases, kLists.of[i].count};
        }
        return fields;
    }
    static constexpr Fields kFields = make_fields();

    static constexpr contract::Choice kChoices[] = {{Chain::kName, Chain::kCode}};
    static constexpr contract::AttributeField kAttributes[] = {
        {"chain", contract::AttributeField::kName, contract::AttributeField::kPassed, 0, kContract.attributes[kChainAttribute].offset,
         contract::list(kChoices)},
        kContract.attributes[kDtypeAttribute],
    };
    static constexpr contract::Description kDescription = {
        kContract.op, kContract.sizes, contract::list(kAttributes), kContract.scalars, contract::list(kFields.of), nullptr};
};

inline constexpr const contract::Description& kChainContract = ChainContract<ChainOfVariant>::kDescription;

// AICF_UNSUPPORTED for another chain than this build's.
inline AicfStatus check_chain(const Params& params) {
    if (params.chain == ChainOfVariant::kCode) return make_ok();
    return make_unsupported("chain = %d: this kernel computes chain %d, %s, alone", static_cast<int>(params.chain), ChainOfVariant::kCode,
                            ChainOfVariant::kName);
}

}  // namespace aicf::elementwise
