"""The sample detector: a small anchor-free network with strides 8, 16 and 32, written for the simulated line."""

import torch
from torch import nn
from torch.nn import functional

STRIDES = (8, 16, 32)


class Conv(nn.Module):
    """Convolution, batch norm, ReLU."""

    def __init__(self, channels_in, channels_out, kernel=3, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, kernel, stride, kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(channels_out, eps=1e-3, momentum=0.03)

    def forward(self, x):
        return functional.relu(self.norm(self.conv(x)))


class Residual(nn.Module):
    """Two 3x3 convolutions through half the channels, added to the input."""

    def __init__(self, channels):
        super().__init__()
        self.narrow = Conv(channels, channels // 2)
        self.widen = Conv(channels // 2, channels)

    def forward(self, x):
        return x + self.widen(self.narrow(x))


class Detector(nn.Module):
    """[n, 3, h, w] RGB 0..1 -> [n, 4 + classes, anchors]: cx, cy, w, h in input pixels, then scores 0..1."""

    def __init__(self, classes, neck=48):
        super().__init__()
        self.classes = classes
        self.stem = nn.Sequential(Conv(3, 16, stride=2), Conv(16, 24, stride=2), Residual(24))
        self.level8 = nn.Sequential(Conv(24, 48, stride=2), Residual(48), Residual(48))
        self.level16 = nn.Sequential(Conv(48, 64, stride=2), Residual(64), Residual(64))
        self.level32 = nn.Sequential(Conv(64, 80, stride=2), Residual(80))
        self.lateral = nn.ModuleList(Conv(channels, neck, kernel=1) for channels in (48, 64, 80))
        self.head = nn.ModuleList(Conv(neck, neck) for _ in STRIDES)
        self.box = nn.ModuleList(nn.Conv2d(neck, 4, 1) for _ in STRIDES)
        self.score = nn.ModuleList(nn.Conv2d(neck, classes, 1) for _ in STRIDES)
        for box, score in zip(self.box, self.score):
            nn.init.zeros_(box.weight)
            with torch.no_grad():
                box.bias.copy_(torch.tensor([0.0, 0.0, 1.0, 1.0]))
            nn.init.normal_(score.weight, std=0.01)
            nn.init.constant_(score.bias, -5.0)

    def raw(self, x):
        """Boxes [n, 4, anchors] in input pixels and logits [n, classes, anchors]."""
        at8 = self.level8(self.stem(x))
        at16 = self.level16(at8)
        at32 = self.level32(at16)
        p32 = self.lateral[2](at32)
        p16 = self.lateral[1](at16) + functional.interpolate(p32, scale_factor=2.0, mode="nearest")
        p8 = self.lateral[0](at8) + functional.interpolate(p16, scale_factor=2.0, mode="nearest")
        boxes, logits = [], []
        for level, (stride, features) in enumerate(zip(STRIDES, (p8, p16, p32))):
            features = self.head[level](features)
            box, score = self.box[level](features), self.score[level](features)
            rows, columns = int(box.shape[2]), int(box.shape[3])
            y, x = torch.meshgrid(
                torch.arange(rows, device=box.device, dtype=torch.float32) + 0.5,
                torch.arange(columns, device=box.device, dtype=torch.float32) + 0.5,
                indexing="ij",
            )
            centre = (box[:, :2].float() + torch.stack((x, y))) * stride
            size = torch.exp(box[:, 2:].float().clamp(-3.0, 4.0)) * stride
            boxes.append(torch.cat((centre, size), 1).flatten(2))
            logits.append(score.float().flatten(2))
        return torch.cat(boxes, 2), torch.cat(logits, 2)

    def forward(self, x):
        boxes, logits = self.raw(x)
        return torch.cat((boxes, logits.sigmoid()), 1)


def fused(model):
    """The same network with every batch norm folded into its convolution."""
    import copy

    model = copy.deepcopy(model).eval()
    for module in model.modules():
        if isinstance(module, Conv):
            module.conv = nn.utils.fusion.fuse_conv_bn_eval(module.conv, module.norm)
            module.norm = nn.Identity()
    return model


def anchors(height, width, device):
    """Centres [anchors, 2] and strides [anchors] in input pixels, in the order of the outputs."""
    centres, strides = [], []
    for stride in STRIDES:
        y, x = torch.meshgrid(
            torch.arange(height // stride, device=device) + 0.5, torch.arange(width // stride, device=device) + 0.5,
            indexing="ij",
        )
        centres.append(torch.stack((x, y), -1).reshape(-1, 2) * stride)
        strides.append(torch.full((centres[-1].shape[0],), float(stride), device=device))
    return torch.cat(centres), torch.cat(strides)
