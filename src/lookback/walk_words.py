"""Every sentence of the walk, in English and Chinese; lines are broken here, to fit into 80 columns.

The Chinese uses the lessons' own terms. A key is `<step>.<what>`; `walk_page.py` fills in the values.
"""

ENGLISH = {
    "notice": "What to notice",
    "enter": "Enter: next step, Ctrl-C: end",
    "sum": "sum",
    "array": "array",
    "shape": "shape",
    "softmax.title": "Softmax: from scores to weights",
    "softmax.shows": "Softmax turns any row of scores into positive weights that sum to 1.\n"
    "These scores are those of q1 in the second lesson.",
    "softmax.printed": "printed in the lesson",
    "softmax.sum": "The weights sum to {total:.2f}. (Added up after rounding they make {rounded:.2f}.)",
    "softmax.corrected": "The lesson prints other numbers. They sum to {total:.2f}, so they are no softmax:\n"
    "right are {k1:.2f} {k2:.2f} {k3:.2f} {k4:.2f} {k5:.2f}.",
    "softmax.shift": "The largest score is subtracted first, so that exp cannot overflow. It changes\n"
    "nothing else: with 1000 added to every score the weights are the same (largest\n"
    "difference {difference:.1g}), while exp(1000) alone is infinite.",
    "attention.title": "Scaled dot-product attention: one query looks at all keys",
    "attention.shows": "Each word gets random numbers, a row of X, as its embedding. Three matrices make\n"
    "of it a query (what am I looking for?), a key (what do I contain?) and a value\n"
    "(what do I offer?). Then the query of '{query}' looks at every key.",
    "attention.match": "'{query}' gives most weight, {largest:.2f}, to '{key}', whose key has the\n"
    "largest dot product with its query.",
    "attention.sum": "The output is a weighted sum of the rows of V. By hand: its first number is\n"
    "the sum of the last column above, {first:.2f}.",
    "scaling.title": "Why the scores are divided by sqrt(d_k)",
    "scaling.shows": "If the numbers in queries and keys are independent, with mean 0 and variance 1,\n"
    "a dot product of d_k of them has variance d_k. Measured on {queries} queries with {keys}\n"
    "keys each, with the scores as they are and scaled:",
    "scaling.variance_raw": "variance\nas is",
    "scaling.variance_scaled": "variance\nscaled",
    "scaling.largest_raw": "max weight\nas is",
    "scaling.largest_scaled": "max weight\nscaled",
    "scaling.slope_raw": "slope\nas is",
    "scaling.slope_scaled": "slope\nscaled",
    "scaling.variance": "At d_k = {width} the scores have variance {raw:.1f}; divided by sqrt(d_k), {scaled:.2f}.",
    "scaling.saturated": "Without scaling, softmax saturates: at d_k = {width} the largest weight of a row\n"
    "is {raw:.2f} on average, almost one-hot; with it, about {scaled:.2f} at every d_k.",
    "scaling.slope": "slope = mean of weight * (1 - weight): how far a weight moves with its score.\n"
    "Scaled it is {ratio:.0f} times as large there: the gradient does not vanish.",
    "sentence.title": "The weights of a sentence, as a table",
    "sentence.shows": "Self-attention: queries, keys and values all come from this sentence. A row is a\n"
    "query: where that word looks. A column is a key: the word that is looked at.",
    "sentence.rows": "Each row sums to 1 (largest deviation {difference:.1g}).",
    "sentence.columns": "Columns need not: '{key}' gets {total:.2f} in all.",
    "sentence.chance": "Embeddings and matrices are random, so who looks at whom is chance here. Only\n"
    "training gives it a meaning; --seed draws others.",
    "heatmap.title": "The heatmap: the same weights in shades",
    "heatmap.shows": "Rows are queries, columns are keys, as in the table. The fuller a cell, the\n"
    "larger its weight.",
    "heatmap.shades": "{light}{light} begins at {first:.3f}, {medium}{medium} at {second:.3f}, "
    "{dark}{dark} at {third:.3f}, {full}{full} at {largest:.3f}.\nBelow the first a cell is blank, not 0.",
    "heatmap.largest": "Shares are rounded down, so only the largest weight is full: '{query}'\n"
    "looks at '{key}' with {largest:.3f}.",
    "masks.title": "Masks: what a query may not look at",
    "masks.shows": "Where the mask is 0, the score is put to minus infinity before softmax. The\n"
    "causal mask hides the future: each word sees itself and what stands before it.",
    "masks.causal": "Above the diagonal every weight is exactly 0 (the largest: {above:g}). '{word}'\n"
    "can look only at itself, with weight {weight:.3f}.",
    "masks.share": "Rows still sum to 1: each is the row without a mask, cut off and divided by\n"
    "its sum (largest difference {difference:.1g}).",
    "masks.padding": "The last table has another mask, which hides '{word}' from all, as if it\n"
    "were only there to fill up: its column is exactly 0 (the largest: {column:g}).",
    "masks.nowhere": "With -inf a query that may look nowhere would get NaN. lesson.py takes the\n"
    "lowest finite number and then sets hidden weights to 0: weights {weight:g}, output {output:g}.",
    "heads.title": "Many heads: several maps side by side",
    "heads.shows": "The width d_model = {width} is split among {heads} heads of d_k = {share}. Each has its\n"
    "own queries, keys and values, and so its own map; the outputs are joined, then\n"
    "multiplied by Wo.",
    "heads.head": "In head {head}, '{query}' looks hardest at '{key}': {largest:.3f}.",
    "heads.scale": "Each drawing has its own scale: full is the largest weight of that head.",
    "heads.differ": "The maps differ by up to {difference:.3f} in a cell: several kinds of relations at once.",
    "heads.alone": "No head knows of another: attention with its columns of Wq, Wk and Wv alone\n"
    "gives the same map (largest difference {difference:.1g}).",
    "shapes.title": "The shapes",
    "shapes.shows": "The first lesson's example: {batch} sentences of {tokens} words, d_model = {width},\n"
    "h = {heads} heads.",
    "shapes.axes": "axes",
    "shapes.tokens": "batch, word, d_model",
    "shapes.matrix": "d_model, d_model",
    "shapes.split": "batch, head, word, d_k",
    "shapes.turned": "batch, head, d_k, word",
    "shapes.map": "batch, head, query, key",
    "shapes.maps": "There is a map for each sentence and each head: {maps} maps of {tokens} x {tokens}.",
    "shapes.same": "The output is shaped as the input, so that layers can be stacked; and the\n"
    "first row, weights[0, 0, 0], sums to {total:.1f}.",
    "torch.title": "The same through nn.MultiheadAttention",
    "torch.shows": "The layer of the step on many heads, and torch's with the very same weights,\n"
    "read the same sentence, without a mask and with the causal one.",
    "torch.difference": "largest difference",
    "torch.missing": "torch is not installed in this Python, so this step is left out. All others\ndo without it.",
    "torch.same": "The largest difference of all is {difference:.2g}, mere rounding: it is one formula.",
    "torch.mean": "torch returns the mean over the heads unless average_attn_weights=False.",
    "torch.mask": "In torch's attn_mask, True means: may not look. The lesson means the opposite.",
}

CHINESE = {
    "notice": "注意看",
    "enter": "回车看下一步，Ctrl-C 结束",
    "sum": "和",
    "array": "数组",
    "shape": "形状",
    "softmax.title": "softmax：把分数变成权重",
    "softmax.shows": "任何一行分数，经过 softmax 都会变成一组正数，加起来等于 1，这就是权重。\n"
    "下面用的是第二课里 q1 那一行分数。",
    "softmax.printed": "课文里印的",
    "softmax.sum": "权重之和是 {total:.2f}。（先四舍五入再相加，得到的是 {rounded:.2f}。）",
    "softmax.corrected": "课文里印的数不一样，它们的和只有 {total:.2f}，所以不可能是 softmax 的结果。\n"
    "正确的是 {k1:.2f} {k2:.2f} {k3:.2f} {k4:.2f} {k5:.2f}。",
    "softmax.shift": "先减去最大值，exp 就不会溢出，结果却不变：给每个分数都加上 1000，权重还是\n"
    "那些（最大相差 {difference:.1g}）；要是直接算 exp(1000)，得到的是无穷大。",
    "attention.title": "缩放点积注意力：一个查询看所有的键",
    "attention.shows": "每个词的嵌入是一行随机数，合起来就是 X。三个权重矩阵把它投影成\n"
    "查询（我在找什么）、键（我包含什么）和值（我能提供什么）。\n然后让“{query}”的查询去看每一个键。",
    "attention.match": "“{query}”给“{key}”的权重最大，是 {largest:.2f}，\n因为它的查询和这个键的点积最大。",
    "attention.sum": "输出就是 V 各行的加权求和。不妨自己算一遍：输出的第一个数，就是上面\n"
    "weights * V[:, 0] 那一列的和，{first:.2f}。",
    "scaling.title": "为什么要除以 sqrt(d_k)",
    "scaling.shows": "查询和键里的数要是相互独立，均值为 0、方差为 1，d_k 维的点积方差就是 d_k。\n"
    "下面取 {queries} 个查询，每个查询配 {keys} 个键，比一比缩放前后：",
    "scaling.variance_raw": "方差\n缩放前",
    "scaling.variance_scaled": "方差\n缩放后",
    "scaling.largest_raw": "最大权重\n缩放前",
    "scaling.largest_scaled": "最大权重\n缩放后",
    "scaling.slope_raw": "斜率\n缩放前",
    "scaling.slope_scaled": "斜率\n缩放后",
    "scaling.variance": "d_k = {width} 时，分数的方差是 {raw:.1f}；除以 sqrt(d_k) 以后是 {scaled:.2f}。",
    "scaling.saturated": "不缩放，softmax 就会饱和：d_k = {width} 时，一行里最大的权重平均有 {raw:.2f}，\n"
    "几乎成了 one-hot。缩放以后，不管 d_k 多大，都在 {scaled:.2f} 左右。",
    "scaling.slope": "斜率是 weight * (1 - weight) 的平均值，也就是分数动一点，权重跟着动多少。\n"
    "这里缩放后的斜率是缩放前的 {ratio:.0f} 倍，梯度不会消失。",
    "sentence.title": "一句话的权重表",
    "sentence.shows": "自注意力：查询、键、值都来自同一句话。每一行是一个查询，说的是这个词在看哪里；\n"
    "每一列是一个键，也就是被看的那个词。",
    "sentence.rows": "每一行的和都是 1（最大偏差 {difference:.1g}）。",
    "sentence.columns": "每一列的和却不一定：“{key}”那一列加起来是 {total:.2f}。",
    "sentence.chance": "嵌入和矩阵都是随机数，所以现在谁看谁全凭运气，要训练过才有意义。\n"
    "换一个 --seed，就换一组随机数。",
    "heatmap.title": "热力图：把同样的权重画成深浅",
    "heatmap.shows": "和上一步的表一样，行是查询，列是键。格子涂得越满，权重越大。",
    "heatmap.shades": "{light}{light} 从 {first:.3f} 起，{medium}{medium} 从 {second:.3f} 起，"
    "{dark}{dark} 从 {third:.3f} 起，{full}{full} 是 {largest:.3f}；\n空白只表示比 {first:.3f} 还小，并不是 0。",
    "heatmap.largest": "深浅是向下取整的，所以只有最大的权重才涂满：\n“{query}”看“{key}”，{largest:.3f}。",
    "masks.title": "掩码：哪些位置不许看",
    "masks.shows": "掩码是 0 的地方，分数在 softmax 之前设为负无穷。因果掩码屏蔽未来位置：\n"
    "每个词只能看自己和前面的词。",
    "masks.causal": "对角线上方的权重恰好都是 0（最大的是 {above:g}）。\n“{word}”只能看自己，权重是 {weight:.3f}。",
    "masks.share": "每一行的和仍然是 1：没有掩码时的那一行，只留下看得到的部分，再除以这部分的和，\n"
    "得到的就是它（最大相差 {difference:.1g}）。",
    "masks.padding": "最后一张表换成了填充掩码，把“{word}”当作凑长度的填充，谁都不许看它：\n"
    "它那一列恰好都是 0（最大的是 {column:g}）。",
    "masks.nowhere": "要是一个查询哪里都不许看，真用负无穷就会算出 NaN。lesson.py 用的是\n"
    "最小的有限数，再把看不到的权重清零：权重是 {weight:g}，输出也是 {output:g}。",
    "heads.title": "多头注意力：几张图同时看",
    "heads.shows": "d_model = {width} 切分给 {heads} 个头，每个头的 d_k = {share}。每个头都有自己的查询、键、值，\n"
    "也就有自己的一张注意力图；各头的输出拼接起来，再乘以 Wo。",
    "heads.head": "在头 {head} 里，“{query}”看“{key}”看得最重：{largest:.3f}。",
    "heads.scale": "每张图的深浅各有各的标准：涂满的是这个头自己最大的权重。",
    "heads.differ": "同一个格子，两张图最多相差 {difference:.3f}：不同的头可以关注不同的关系。",
    "heads.alone": "头与头互不相干：只取 Wq、Wk、Wv 里属于这个头的几列，单独算一遍，\n"
    "得到的是同一张图（最大相差 {difference:.1g}）。",
    "shapes.title": "形状",
    "shapes.shows": "第一课的例子：{batch} 条样本，每条 {tokens} 个词，d_model = {width}，h = {heads} 个头。",
    "shapes.axes": "各个维度",
    "shapes.tokens": "样本, 词, d_model",
    "shapes.matrix": "d_model, d_model",
    "shapes.split": "样本, 头, 词, d_k",
    "shapes.turned": "样本, 头, d_k, 词",
    "shapes.map": "样本, 头, 查询, 键",
    "shapes.maps": "每条样本、每个头都有自己的一张图：一共 {maps} 张，每张 {tokens} x {tokens}。",
    "shapes.same": "输出和输入形状相同，所以可以一层层堆叠。\n第一行 weights[0, 0, 0] 的和是 {total:.1f}。",
    "torch.title": "换成 nn.MultiheadAttention，结果一样",
    "torch.shows": "把上面那个多头注意力层的权重矩阵原样交给 torch，读同一句话，\n不加掩码和加因果掩码各算一遍。",
    "torch.difference": "最大相差",
    "torch.missing": "这个 Python 里没有装 torch，这一步就跳过了；其余各步都用不着它。",
    "torch.same": "相差最大的也只有 {difference:.2g}，这是舍入误差：公式是同一个。",
    "torch.mean": "torch 默认返回各头的平均；要每个头的，得写 average_attn_weights=False。",
    "torch.mask": "torch 的 attn_mask 里，True 是不许看，和课文里正好相反。",
}

WORDS = {"en": ENGLISH, "zh": CHINESE}
